/**
 * One time line, in ms, on which leases are measured. It goes on while the process is stopped and while
 * the machine sleeps. On Linux, Node's own clock stands still while the machine sleeps; os.uptime()
 * does not, but it is coarse, and takes some microseconds.
 */
import { uptime } from 'node:os';

const COARSE_MS = 50;
const awake = () => performance.now();
const always = process.platform === 'linux' ? () => uptime() * 1000 : awake;
const apart = always() - awake();
let slept = 0;

/** The present, for judging whether something is over. */
export function now(): number {
  const behind = always() - awake() - apart;
  if (behind > slept + COARSE_MS) slept = behind;
  return stamp();
}

/** When something is sent or heard: cheap, and never later than now(). */
export function stamp(): number {
  return awake() + slept;
}

const DELAY_MAX = 2 ** 31 - 1;

/** Calls `ring` at a moment of that line. */
export class Alarm {
  readonly #ring: () => void;
  #at = Infinity;
  #timer: NodeJS.Timeout | undefined;

  constructor(ring: () => void) {
    this.#ring = ring;
  }

  /** At `at`, or earlier: whoever is rung too early sets it again. */
  by(at: number): void {
    if (at >= this.#at) return;
    this.off();
    this.#at = at;
    const delay = Math.min(Math.max(Math.ceil(at - stamp()), 0), DELAY_MAX);
    this.#timer = setTimeout(() => {
      this.#at = Infinity;
      this.#ring();
    }, delay);
  }

  off(): void {
    clearTimeout(this.#timer);
    this.#at = Infinity;
  }
}
