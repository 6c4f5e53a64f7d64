/* What a client may be told about the effect of its key, from the record alone.
 *
 * One key, one client that sends it up to TRIES times, handlers that crash or end anywhere, messages to the provider
 * that arrive late, a worker, a sweeper, a reconciler, a webhook, an operator and the reaper. The client may ask at any
 * moment. Once the record says "none", it gives the key up and sends the work with a new one: that is a second effect
 * if the first one is there, or still comes.
 *
 * Each flag removes one fact from the rule, and spin then finds the client that pays twice:
 *   IGNORE_DERIVED IGNORE_WROTE IGNORE_STEPS IGNORE_TAINT   the rule does not look at this fact
 *   ENDED_IS_SAFE    "the record has ended" is taken for "nothing happened"
 *   FOREIGN_PROOF    a NotExecuted about another key is believed about this one
 *   RELEASE_WITHOUT  a key that is freed after derive() forgets that it derived
 *   ABANDON_ALL      waiting work is abandoned whatever its acceptance did
 *   NO_GRACE         a negative verdict is believed while messages may still arrive
 */
#ifndef TRIES
#define TRIES 2
#endif
#ifndef FAULTS
#define FAULTS 3          /* crashes, lost responses and refusals, in all */
#endif

mtype = { ABSENT, INPROG, PENDING, ANSWERED, FREE, UNKNOWN, DEAD, FAILED, EXPIRED };

/* the record: its status, whether its response is a success, and what it remembers of the attempts so far */
mtype st = ABSENT;
bool success, derived, wrote, steps, taint, deferred, expired;
byte tok;
/* the world */
byte ntok, tries, live, flying, faults = FAULTS;
bool charged, effect, gave_up;

#ifdef IGNORE_DERIVED
#define F_DERIVED false
#else
#define F_DERIVED derived
#endif
#ifdef IGNORE_WROTE
#define F_WROTE false
#else
#define F_WROTE wrote
#endif
#ifdef IGNORE_STEPS
#define F_STEPS false
#else
#define F_STEPS steps
#endif
#ifdef IGNORE_TAINT
#define F_TAINT false
#else
#define F_TAINT taint
#endif
#define TRACE (F_DERIVED || F_WROTE || F_STEPS || F_TAINT)
#define REFUSED ((st == ANSWERED || st == EXPIRED) && !success)
#ifdef ENDED_IS_SAFE
#define NONE (st == FREE || st == FAILED || st == ANSWERED || st == EXPIRED)
#else
#define NONE ((st == FREE || st == FAILED || REFUSED) && !TRACE)
#endif
#ifdef NO_GRACE
#define QUIET true
#else
#define QUIET (live == 0 && flying == 0)   /* no attempt lives, and nothing it sent can still arrive */
#endif
#define MINE (st == INPROG && tok == my)

inline happen() { effect = true; assert(!gave_up) }          /* the new key's effect is there already */
inline claim()  { ntok++; tok = ntok; st = INPROG; expired = false; live++ }

active proctype Client() {
end: do
  :: atomic { tries < TRIES && st == ABSENT -> tries++; claim(); run Handler(tok) }
  :: atomic { tries < TRIES && st == FREE -> tries++; claim(); run Handler(tok) }
  :: atomic { tries < TRIES && !deferred && ((st == INPROG && expired) || st == UNKNOWN) ->   /* restart-safe endpoints */
       tries++; taint = true; claim(); run Handler(tok) }
  :: atomic { tries == TRIES && st == FREE -> st = FAILED }   /* the attempts are used up */
  :: atomic { NONE -> gave_up = true; assert(!effect); break }
  od
}

proctype Handler(byte my) {
  bool asked;                                 /* derive() was called; the record learns of it when the attempt ends */
  do                                          /* what it does before it ends */
  :: atomic { MINE && !asked -> steps = true; happen() }                                   /* a phase commits */
  :: atomic { !asked -> asked = true; flying++ } ; break
  :: break
  od;
  if
  :: atomic { MINE -> if :: !asked :: charged fi; st = ANSWERED; success = true; derived = derived || asked; happen() }
  :: atomic { MINE && !taint -> st = ANSWERED; success = false; derived = derived || asked }  /* a 4xx of the view */
  :: atomic { MINE && !taint && !steps && !asked -> st = FREE }                               /* NotExecuted */
#ifdef FOREIGN_PROOF
  :: atomic { MINE && !taint && !steps && asked -> st = FREE }
#endif
  :: atomic { MINE && !taint && !steps -> st = FREE;                                          /* on_error="release" */
#ifndef RELEASE_WITHOUT
       derived = derived || asked
#endif
     }
  :: atomic { MINE -> st = UNKNOWN; derived = derived || asked }                              /* doubt */
  :: atomic { MINE -> st = PENDING; deferred = true; derived = derived || asked }             /* defer() */
  :: atomic { MINE -> st = PENDING; deferred = true; derived = derived || asked;              /* defer(write=...) */
       wrote = true; happen() }
  :: atomic { faults > 0 -> faults-- }                                                        /* killed */
  :: atomic { !MINE -> skip }                                                                 /* fenced: rolled back */
  fi;
  atomic { live-- }
}

active proctype Provider() {                  /* any message arrives at any later time, or never */
end: do
  :: atomic { flying > 0 -> flying--; charged = true; happen() }
  :: atomic { flying > 0 && faults > 0 -> faults--; flying-- }
  od
}

active proctype Worker() {
  byte my; bool asked;
end: do
  :: atomic { st == PENDING && ntok < 4 -> claim(); my = tok; asked = false };
     if :: atomic { asked = true; flying++ } :: skip fi;
     if
     :: atomic { MINE -> st = ANSWERED; success = true; derived = derived || asked; happen() }
     :: atomic { MINE && !taint && faults > 0 -> faults--; st = PENDING; derived = derived || asked }  /* put back */
     :: atomic { faults > 0 -> faults-- }
     :: atomic { !MINE -> skip }
     fi;
     atomic { live-- }
  od
}

active proctype Jobs() {
end: do
  :: atomic { st == INPROG && !expired && live == 0 -> expired = true }
  :: atomic { st == INPROG && !expired && live > 0 && faults > 0 -> faults--; expired = true } /* it outlives its lease */
  :: atomic { st == INPROG && expired -> st = UNKNOWN }
#ifdef ABANDON_ALL
  :: atomic { st == PENDING && live == 0 -> st = FAILED; derived = false; wrote = false }
#else
  :: atomic { st == PENDING && live == 0 -> if :: TRACE -> st = DEAD :: else -> st = FAILED fi }
#endif
  :: atomic { st == ANSWERED || st == FAILED -> st = EXPIRED }
  od
}

active proctype Reconciler() {                /* the operator and the webhook tell what they find at the provider, too */
  byte read; bool found;
end: do
  :: atomic { st == UNKNOWN && QUIET -> read = tok };
     atomic { found = charged };
     atomic {
       if
       :: st == UNKNOWN && tok == read && found -> st = ANSWERED; success = true; derived = true; happen()
       :: st == UNKNOWN && tok == read && !found && !deferred -> st = FREE; taint = false; derived = false
       :: st == UNKNOWN && tok == read && !found && deferred -> st = PENDING; taint = false
       :: st == UNKNOWN && tok == read -> st = DEAD                                           /* inconclusive */
       :: else
       fi; read = 0; found = false }
  :: atomic { (st == DEAD || st == UNKNOWN) && QUIET && !charged && !wrote ->                  /* the operator dismisses */
       st = FREE; deferred = false; taint = false; derived = false }
  :: atomic { st == DEAD && faults > 0 -> faults--; st = UNKNOWN }                             /* try again, or a denial */
  :: atomic { charged && (st == DEAD || st == UNKNOWN || st == PENDING || st == FREE) ->       /* a webhook */
       st = ANSWERED; success = true; derived = true; happen() }
  od
}
