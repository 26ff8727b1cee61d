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

/** The present, but for a sleep that now() has not noticed yet: cheap, for when something is sent or heard. */
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
    const present = stamp();
    if (at >= this.#at && this.#at > present) return;
    const next = Math.min(at, this.#at); // which is over already, if the machine has slept
    this.off();
    if (next === Infinity) return;
    this.#at = next;
    const delay = Math.min(Math.max(Math.ceil(next - present), 0), DELAY_MAX);
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
