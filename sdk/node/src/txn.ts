/**
 * Statements and operators of transactions, under the names of docs/TRANSACTIONS.md. What they make is
 * its JSON, so both can be mixed. Durations are ms.
 *
 *     txn.assert(txn.not(txn.exists('Month-End', 'CGROVE-35')))
 */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
export type Statement = { readonly [name: string]: Json };
export type Operator = { readonly [name: string]: Json };

/** Which records count. */
export interface ExistsOptions {
  /** Those of the own session, too. */
  withThisSession?: boolean;
}

export interface SetOptions {
  /** An end of its own; without it the record ends with the session. */
  ttl?: number;
  description?: string;
  allowDuplicates?: boolean;
  respectExclusive?: boolean;
}

export interface SelectOptions extends ExistsOptions {
  /** All records, not only the oldest one. */
  many?: boolean;
  abortIfNotFound?: boolean;
}

export interface TxnLockOptions {
  /** The name of its fence in the data. */
  into?: string;
  owner?: string;
  shared?: boolean;
  permits?: number;
  of?: number;
  ttl?: number;
  grace?: number;
  delay?: number;
}

// ---- statements

/** Aborts the transaction when `op` is false. */
export const assert = (op: Operator): Statement => ({ assert: op });
export const abort = (): Statement => ({ abort: {} });
/** In order, until one aborts. */
export const block = (...statements: Statement[]): Statement => ({ block: statements });
/** Does `op` and ignores its result. */
export const anyway = (op: Operator): Statement => ({ anyway: op });

const ifElse = (cond: Operator, then: Statement, otherwise?: Statement): Statement => ({
  if: given({ cond, then, else: otherwise }),
});

/** Adds the oldest record, or null, to the data. */
export const select = (into: string, table: string, key: string, options: SelectOptions = {}): Statement => ({
  select: given({
    into,
    table,
    key,
    many: options.many || undefined,
    ...own(options),
    abort_if_not_found: options.abortIfNotFound || undefined,
  }),
});
export const selectConstant = (into: string, value: Json): Statement => ({ select_constant: { into, value } });
export const selectOperator = (into: string, op: Operator): Statement => ({ select_operator: { into, op } });

// ---- operators

const yes = (): Operator => ({ true: {} });
const no = (): Operator => ({ false: {} });
export const not = (op: Operator): Operator => ({ not: op });
/** All operands are evaluated, with their effects. */
export const and = (...ops: Operator[]): Operator => ({ and: ops });
/** All operands are evaluated, with their effects. */
export const or = (...ops: Operator[]): Operator => ({ or: ops });
export const xor = (...ops: Operator[]): Operator => ({ xor: ops });

/** Another session has a record there; with a value: one with that value. */
export const exists = (table: string, key: string, value?: Json, options: ExistsOptions = {}): Operator => ({
  exists: given({ table, key, value, ...own(options) }),
});

/** The key was free, and is set now. */
export const set = (table: string, key: string, value: Json, options: SetOptions = {}): Operator => ({
  set: given({
    table,
    key,
    value,
    ttl_ms: options.ttl,
    description: options.description,
    allow_duplicates: options.allowDuplicates || undefined,
    respect_exclusive: options.respectExclusive || undefined,
  }),
});

/** There was a record of this session (with that value), and it is gone now. */
const remove = (table: string, key: string, value?: Json): Operator => ({ delete: given({ table, key, value }) });

/** The lock could be had at once, and is held now. */
export const lock = (name: string, options: TxnLockOptions = {}): Operator => ({
  lock: given({
    name,
    into: options.into,
    owner: options.owner,
    mode: options.shared ? 'shared' : undefined,
    permits: options.permits,
    of: options.of,
    ttl_ms: options.ttl,
    grace_ms: options.grace,
    delay_ms: options.delay,
  }),
});

/** It was held, by this owner or with that fence, and is free now. */
export const unlock = (name: string, options: { owner?: string; fence?: number } = {}): Operator => ({
  unlock: given({ name, owner: options.owner, fence: options.fence }),
});

export { ifElse as if, yes as true, no as false, remove as delete };

// ----

function given(members: { [name: string]: Json | undefined }): { [name: string]: Json } {
  const isGiven = ([, value]: [string, Json | undefined]) => value !== undefined;
  return Object.fromEntries(Object.entries(members).filter(isGiven)) as { [name: string]: Json };
}

function own(options: ExistsOptions): { [name: string]: Json | undefined } {
  return { ignore_this_session: options.withThisSession ? false : undefined };
}
