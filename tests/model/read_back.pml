/* The COMMIT of an attempt was lost, and the attempt stands still before it reads its record back.
 *
 * Meanwhile its lease ends, and a reconciler or a webhook completes the record with a row of its own. The attempt must
 * not take that for its own completion: its row was rolled back.
 *
 *   SAME_TOKEN     a verdict completes the record and leaves the attempt's token
 *   NO_READ_BACK   the attempt believes that its COMMIT went through
 */
mtype = { INPROG, ANSWERED, UNKNOWN };
mtype st = INPROG;
byte tok = 1, answer, seen;       /* the stored response; what the clients got */
bool row1, row2, expired, asked;

inline deliver(a) { assert(seen == 0 || seen == a); seen = a }

active proctype Attempt() {
  bool landed;
  atomic {
    if
    :: st == INPROG && tok == 1 ->            /* the lease may end under it before */
       if :: st = ANSWERED; answer = 1; row1 = true; landed = true
          :: landed = false                   /* rolled back */
       fi
    :: else -> goto fenced
    fi };
  skip;                                       /* stands still: the acknowledgement is lost */
#ifdef NO_READ_BACK
  atomic { deliver(1); assert(row1) };
#else
  atomic {
    if
    :: st == INPROG && tok == 1 -> st = UNKNOWN                       /* it was rolled back: doubt */
    :: st == ANSWERED && tok == 1 -> deliver(1); assert(row1)         /* "my response is stored" */
    :: else -> skip                                                   /* 409: the outcome is unknown */
    fi };
#endif
fenced: skip
}

active proctype Sweeper() {
end: do
  :: atomic { st == INPROG && !expired -> expired = true }
  :: atomic { st == INPROG && expired -> st = UNKNOWN }
  od
}

active proctype Verdict() {                   /* a reconciler's Landed, or the evidence of a webhook */
  atomic { st == UNKNOWN -> asked = true };
  atomic {
    if
    :: st == UNKNOWN -> st = ANSWERED; answer = 2; row2 = true; assert(!row1);
#ifndef SAME_TOKEN
       tok = 2
#endif
    :: else
    fi }
}

active proctype Retry() {
end: atomic { st == ANSWERED -> deliver(answer) }
}
