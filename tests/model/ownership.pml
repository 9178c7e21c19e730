/* Who may run a task of one partition p: the ownership protocol, in every order of its steps.
 *
 * One process picks one enabled step at a time, so that a lane that is frozen is simply a lane that takes no step: each
 * step is a place where it may be frozen and wake later. Nothing is urgent but the kill at a deadline.
 *
 *   group      membership and owner of p; revoke, throw-out, joining again. A member's metadata is current, an outsider's
 *              is refused, and that of a client which knows that it was thrown out, (-1, ""), is accepted unchecked
 *   ring       RING producers per lane that take turns, one transaction of a lane at a time: records, offsets, sentinel,
 *              end. Markers reach the logs later than the decision. Copies of an end of a transaction strike a later one
 *              of the same producer (STRAYS). A lane in the middle of a transaction hears nothing from the group
 *   log of p   state-p and owners-p together, as a reader of committed records sees it: a record is readable when all
 *              before it is decided
 *   lease log  one renewal record per lane on a partition of its own, carried by the same transactions
 *   clocks     timers count down together; one may be set a tick long (holder) or short (waiter) to stand for drift
 *   guard      ends a run at its deadline, whatever the lane does
 *
 * Safeguards are macros: 1 (or the largest value) is what was built. The cases switch them off one at a time.
 */

/* -- bounds ----------------------------------------------------------------------------------------------------- */
#ifndef NL
#define NL 2            /* lanes */
#endif
#ifndef RING
#define RING 2          /* producers of a lane; four in the code */
#endif
#ifndef MAXN
#define MAXN 2          /* acquisitions, which is nonces */
#endif
#ifndef MAXE
#define MAXE 2          /* epochs */
#endif
#ifndef TTL
#define TTL 2           /* lease, in ticks of the holder's clock */
#endif
#ifndef WAIT
#define WAIT 2          /* how long a waiter waits, in ticks of its own clock */
#endif
#ifndef FAULTS
#define FAULTS 1        /* throw-outs, revokes, crashes, copies, time-outs, answers that are lost: how many in all */
#endif

/* -- safeguards ------------------------------------------------------------------------------------------------- */
#ifndef READBACK_RUN    /* a run starts when its record was: 2 read back, 1 committed by the client's word, 0 sent */
#define READBACK_RUN 2
#endif
#ifndef READBACK_RENEW  /* a renewal counts when it was: 2 read back, 0 sent */
#define READBACK_RENEW 2
#endif
#ifndef WAIT_RULE       /* a run found RUNNING is waited for: 0 not at all
                           1 from when any renewal of its holder was last seen, if one was; else from step 1
                           2 always from step 1
                           3 from when the renewal that the answer of step 1 names was seen, if it was; else from step 1 */
#define WAIT_RULE 3
#endif
#ifndef WAIT_FOR        /* what waits: 1 a task found RUNNING, 0 none that this very lane ID recorded, by whatever process */
#define WAIT_FOR 1
#endif
#ifndef VALID_META      /* no commit with metadata (-1, "") */
#define VALID_META 1
#endif
#ifndef STABLE          /* step 1 waits until no transaction of p is pending */
#define STABLE 1
#endif
#ifndef FENCE_TXN       /* step 2 commits a nonce and step 3 reads until it; 0: reads what is there */
#define FENCE_TXN 1
#endif
#ifndef END_HOLDERS     /* producers of earlier holders are ended: 0 never, 1 of those known in step 1, 2 and, with a new
                           nonce, of those that reading up to the own nonce shows */
#define END_HOLDERS 2
#endif
#ifndef QUESTION        /* the group is asked whether it counts the lane in before it ends anybody's producers */
#define QUESTION 1
#endif
#ifndef CHECK           /* what is offered is dropped, or refused, unless p is held under the nonce that it names */
#define CHECK 1
#endif
#ifndef SENTINEL        /* one more record to the first partition of the transaction, after the offsets */
#define SENTINEL 1
#endif
#ifndef SETTLE          /* after an unclear end: decide it, and read to the end, before anything is offered again */
#define SETTLE 1
#endif
#ifndef SETTLE_FIRST    /* an acquisition begins by deciding what is in doubt; 0: each producer when its turn comes */
#define SETTLE_FIRST 1
#endif
#ifndef REL_NONCE       /* "released" names a nonce and counts for that one only */
#define REL_NONCE 1
#endif
#ifndef REL_DRAINED     /* written only when every own run is gone and its end was recorded */
#define REL_DRAINED 1
#endif
#ifndef REL_WAITED      /* written only when nothing is waited for any more */
#define REL_WAITED 1
#endif
#ifndef DEADLINE        /* the guard ends a run at its deadline and starts nothing after it */
#define DEADLINE 1
#endif
#ifndef DL_NONCE        /* a deadline belongs to (p, nonce), not to the lane */
#define DL_NONCE 1
#endif
#ifndef FOREIGN         /* a later nonce than its own sends a lane back to step 1 */
#define FOREIGN 1
#endif

/* -- surroundings: 1 = may happen ------------------------------------------------------------------------------- */
#ifndef STRAYS          /* copies of an end of a transaction */
#define STRAYS 0
#endif
#ifndef SPLIT           /* records, offsets and sentinel are steps of their own */
#define SPLIT (STRAYS > 0)
#endif
#ifndef LATE            /* a state record reaches the broker after the offsets, as with a client that does not flush */
#define LATE 0
#endif
#ifndef UNCLEAR         /* the answer to an end of a transaction, or the end itself, is lost */
#define UNCLEAR 0
#endif
#ifndef HIDE            /* an open transaction of somebody else hides a lane's lease log */
#define HIDE 0
#endif
#ifndef DRIFT           /* a holder's lease may last TTL+1, a wait only WAIT-1 */
#define DRIFT 0
#endif
#ifndef OTHERS          /* a lane renews for other partitions too */
#define OTHERS 0
#endif
#ifndef CRASH           /* a process is frozen, its run lives on, and a new one takes its place and its producers' IDs */
#define CRASH 1
#endif
#ifndef LIVE            /* after the faults have stopped something starts within LIVE ticks */
#define LIVE 0
#endif

#define NONE 9
#define P(l,k) ((l)*RING+(k))
#define NP (NL*RING)
#define W(v,l) ((v)*NL+(l))

/* where a lane stands with p */
#define OUT       0
#define ASKING    1     /* ENDING and ASKING: step 1 */
#define FENCING   2     /* FENCING and READING: steps 2 and 3 */
#define HELD      3     /* step 4: a task found RUNNING waits, all else may start */
#define RELEASING 4
#define GONE      5

/* kinds of transactions, by what they write to p's log */
#define K_NONCE 1
#define K_RUN   2       /* state RUNNING, and the history event on another partition */
#define K_END   3       /* state idle */
#define K_REL   4
#define K_NEW   5       /* a renewal alone */
#define K_MARK  6       /* nothing: what it stands for was written already */

/* where the transaction of a lane stands */
#define NO    0
#define BEGUN 1         /* the first record was flushed, the history event is still to come */
#define READY 2         /* offsets still to come */
#define TOLD  3         /* offsets accepted, sentinel (or a late record) still to come */
#define TOEND 4
#define YES   5         /* ended by the client's word; to be read back */
#define DOUBT 6

/* -- group coordinator -- */
byte owner = NONE;
bit  member[NL];
bit  rv;                /* p is wanted back from its owner */

/* -- transaction coordinator, per producer -- */
byte cs[NP];            /* 0 none, 1 ongoing, 2 committed and markers still to come */
bit  rec[NP];           /* ... on p's log */
bit  lrec[NP];          /* ... on the lease log */
byte his[NP];           /* epoch of a history event in it */
bit  sen[NP];           /* its sentinel is in it */
bit  pend[NP];          /* an offset of p is pending in it */
bit  fenced[NP];        /* the client's producer is out of date */
byte stray[NP];         /* a copy of its end in the network: 1 commit, 2 abort */

/* -- log of p: the decided prefix folded, the undecided suffix kept -- */
byte bn, bl = NONE;     /* last readable nonce and its lane */
byte um;                /* lanes with a nonce since the last release, as bits: the holders that fence records name */
byte be;                /* last readable epoch */
bit  brun, bold, bwhole; /* it is RUNNING; by a process that is no more; its transaction was there as a whole */
byte brl = NONE;        /* ... of this lane */
byte lk[4], lp[4], ln[4], le[4];
bit  lc[4], lo[4], lw[4]; /* committed; of a process that is no more; whole */
byte size;
byte events;            /* bit e: the history event of epoch e was committed */

/* -- lane -- */
byte as[NL];
bit  cl[NL];            /* its client would hand out metadata (-1, "") */
byte cn[NL];            /* own nonce */
byte ep[NL];            /* last epoch it knows */
byte rs[NL];            /* the task to it: 0 idle, 1 RUNNING and its own to end, 2 found RUNNING and waited for */
byte em[NL];            /* lanes whose producers it has ended in this acquisition */
bit  qd[NL];            /* it was counted in */
byte dist[NL];          /* how often it ended somebody's producers since it was thrown out */
byte tw[NL];            /* rest of "step 1 + wait" */
byte tx[NL], tk[NL], tn[NL], at[NL]; /* its transaction: where it stands, kind, nonce, place in the ring */
bit  tr[NL];            /* ... carries a renewal */
bit  acc[NL];           /* ... its offsets were accepted */
bit  vis[NL], visw[NL]; /* ... its record on p is readable; and its sentinel is */
byte pk[NL], pn[NL];    /* what it has to offer again, and under which nonce */
bit  wr[NL];            /* ... and it is written already */

/* -- guard -- */
byte live[NL], rnn[NL]; /* the run that lives (its epoch), and its nonce */
bit  orph[NL];          /* it belongs to a frozen process that is no more */
byte rdl[NL];           /* rest of its deadline */
byte dl[NL];            /* rest of the deadline that is proven for the lane's nonce */

/* -- renewals -- */
byte rb[NL];            /* rest of the deadline that the renewal on its way would prove */
byte rst[NL];           /* its record: 0 none, 1 undecided, 2 committed and not read back */
bit  hid[NL];           /* the lease log is hidden */
bit  uns[NL*NL];        /* v has not seen l's last committed renewal of p */
bit  nd[NL*NL];         /* ... and knows so from the answer of step 1 */
bit  ever[NL*NL];       /* v has seen some renewal of l (WAIT_RULE 1) */
byte sw[NL*NL];         /* rest of "seen + wait" */
byte lastr = NONE;      /* the lane whose renewal named p last: the stamp of p's offset */
byte lr[NL];            /* ... as step 1 told it */

byte nn = 1;            /* next nonce */
byte started;           /* bit e: epoch e was started */
byte faults = FAULTS;
bit  calm, lively;
byte ct;
byte i, j, z;           /* scratch, always 0 between steps */

/* -- small helpers ---------------------------------------------------------------------------------------------- */

inline append(k, p, n, e) {
	lk[size] = k; lp[size] = p; ln[size] = n; le[size] = e; lc[size] = 0; lo[size] = 0; lw[size] = 0; size++;
	rec[p] = 1; cs[p] = 1
}

inline drop(x) {
	for (j : x .. 2) { lk[j] = lk[j+1]; lp[j] = lp[j+1]; ln[j] = ln[j+1]; le[j] = le[j+1]; lc[j] = lc[j+1]; lo[j] = lo[j+1]; lw[j] = lw[j+1] };
	j = 0; lk[3] = 0; lp[3] = 0; ln[3] = 0; le[3] = 0; lc[3] = 0; lo[3] = 0; lw[3] = 0; size--
}

#define BY (lp[0]/RING)

/* Readable records become what any reader of p knows. */
inline fold() {
	do
	:: size > 0 && lc[0] ->
		assert(lk[0] == K_NONCE || lk[0] == K_REL || ln[0] == bn || !FENCE_TXN || as[bl] < HELD || cn[bl] != bn); /* FENCE: nothing of an older nonce becomes readable behind one that its lane acts on */
		if
		:: lk[0] == K_NONCE -> bn = ln[0]; bl = BY; um = um | (1 << BY)
		:: lk[0] == K_RUN ->
			assert(le[0] == be + 1 || (le[0] == be && brun && !bwhole)); /* EPOCHS: each epoch is the one after the last, unless that was torn and is offered again */
			be = le[0]; brun = 1; brl = BY; bold = lo[0]; bwhole = lw[0]
		:: lk[0] == K_END ->
			assert(le[0] == be); /* EPOCHS: the end of the last epoch, of no other */
			brun = 0; brl = NONE; bold = 0; bwhole = 0
		:: lk[0] == K_REL ->
			if
			:: !REL_NONCE || ln[0] == bn ->
				um = 0;
				for (j : 0 .. NL-1) { assert(live[j] == 0) }; j = 0 /* RELEASED: no run of a released partition lives */
			:: else
			fi
		fi;
		if :: ln[0] == tn[BY] && !lo[0] && lk[0] == tk[BY] && tx[BY] != NO -> vis[BY] = 1; visw[BY] = lw[0] :: else fi;
		drop(0)
	:: else -> break
	od
}

/* Undecided records of producer p go. */
inline purge(p) {
	z = 0;
	do
	:: z < size && lp[z] == p && !lc[z] -> drop(z)
	:: z < size && !(lp[z] == p && !lc[z]) -> z++
	:: z >= size -> break
	od;
	z = 0; fold()
}

/* An end of a transaction reaches the coordinator: it cannot know which transaction of that epoch was meant.
 * Markers of offsets and of aborted records are applied at once: later ones only hold others back. */
inline decide(p, commit) {
	if
	:: cs[p] == 1 ->
		pend[p] = 0;
		if
		:: commit ->
			cs[p] = (rec[p] || lrec[p] -> 2 : 0);
			if :: his[p] -> events = events | (1 << his[p]) :: else fi;
			if :: sen[p] -> do :: z < size -> if :: lp[z] == p && !lc[z] -> lw[z] = 1 :: else fi; z++ :: else -> break od; z = 0 :: else fi;
			if :: lrec[p] -> lastr = (p)/RING; for (j : 0 .. NL-1) { if :: j != (p)/RING -> uns[W(j,(p)/RING)] = 1 :: else fi }; j = 0 :: else fi
		:: else ->
			cs[p] = 0; rec[p] = 0;
			if :: lrec[p] -> lrec[p] = 0; rst[(p)/RING] = 0; rb[(p)/RING] = 0 :: else fi;
			purge(p)
		fi;
		his[p] = 0; sen[p] = 0
	:: else
	fi
}

inline mark_log(p) {
	rec[p] = 0; cs[p] = (lrec[p] -> 2 : 0);
	do :: z < size -> if :: lp[z] == p -> lc[z] = 1 :: else fi; z++ :: else -> break od;
	z = 0; fold()
}

inline mark_lease(p) { lrec[p] = 0; cs[p] = (rec[p] -> 2 : 0); if :: rst[(p)/RING] == 1 -> rst[(p)/RING] = 2 :: else fi }

/* init_transactions by anyone with this ID, or the broker's time-out. */
inline fence(p) { fenced[p] = 1; stray[p] = 0; decide(p, 0) }
inline remake(p) { fenced[p] = 0; stray[p] = 0 }

#if RING == 1
#define EACH(f, l) (f(P(l,0)))
#define ANY(f, l) (f(P(l,0)))
#define fence_ring(l) fence(P(l,0))
#define remake_ring(l) remake(P(l,0))
#else
#define EACH(f, l) (f(P(l,0)) && f(P(l,1)))
#define ANY(f, l) (f(P(l,0)) || f(P(l,1)))
#define fence_ring(l) fence(P(l,0)); fence(P(l,1))
#define remake_ring(l) remake(P(l,0)); remake(P(l,1))
#endif
#if NL == 2
#define ALL(f) (EACH(f, 0) && EACH(f, 1))
#else
#define ALL(f) (EACH(f, 0) && EACH(f, 1) && EACH(f, 2))
#endif

#define CLEAN(p) (cs[p] < 2)    /* else the coordinator answers that it is still at work */
#define QUIET(p) (cs[p] == 0)
#define STEADY(p) (!pend[p])
#define FENCED(p) (fenced[p])
#define LEASING(p) (lrec[p])
#define NEXT(l) P(l, (at[l] + 1) % RING)
#define NOW(l) P(l, at[l])
#define OWN_LOG(l) ((size > 0 && lp[0]/RING == l) || (size > 1 && lp[1]/RING == l) || (size > 2 && lp[2]/RING == l) || (size > 3 && lp[3]/RING == l))
#define FAULT (faults > 0 && !calm)
#define DEADLINE_OK(l) (!DEADLINE || dl[l] > 0)
#define MINE_NOW(l) (member[l] && owner == l)
#define TO_END(l) (um & ~em[l] & ~(1 << l))
#define FREE(l) (tx[l] == NO || tx[l] == DOUBT)       /* it is in no call of a transaction: the group may speak to it */
#define MAY_BEGIN(l) (tx[l] == NO && cs[NEXT(l)] == 0 && !fenced[NEXT(l)] && size < 4)
#define HOLDS(l, n) (!CHECK || (as[l] != OUT && cn[l] == n))
#define ACCEPTED(l) (member[l] || (!VALID_META && cl[l]))
#define MAY_ACT(l) (as[l] == HELD && cn[l] == pn[l] && (live[l] == 0 || orph[l]) && DEADLINE_OK(l))

/* The run of lane l is gone. */
inline gone(l) { live[l] = 0; rnn[l] = 0; rdl[l] = 0; orph[l] = 0 }

/* A renewal that counts moves deadlines of the nonce that it names. */
inline extend(l, d, n) {
	if :: n == cn[l] || !DL_NONCE -> if :: d > dl[l] -> dl[l] = d :: else fi :: else fi;
	if :: live[l] && !orph[l] && (n == rnn[l] || !DL_NONCE) -> if :: d > rdl[l] -> rdl[l] = d :: else fi :: else fi
}

inline forget_answer(l) { em[l] = 0; qd[l] = 0; lr[l] = NONE; tw[l] = 0; for (j : 0 .. NL-1) { nd[W(l,j)] = 0 }; j = 0 }
inline forget_offer(l) { tk[l] = 0; tn[l] = 0; tr[l] = 0; acc[l] = 0; vis[l] = 0; visw[l] = 0 }
inline drop_offer(l) { if :: CHECK -> pk[l] = 0; pn[l] = 0; wr[l] = 0 :: else fi }

/* Step 1 again: what was restored is forgotten; runs stay with the guard. */
inline again(l) { as[l] = ASKING; cn[l] = 0; ep[l] = 0; rs[l] = 0; forget_answer(l); drop_offer(l); if :: DL_NONCE -> dl[l] = 0 :: else fi }
inline leave(l) { again(l); as[l] = OUT }

/* Step 3 is done: what was read says how the task stands. */
inline restore(l) {
	ep[l] = be;
	if
	:: !brun -> rs[l] = 0; forget_answer(l)
	:: brun && brl == l && !(bold && WAIT_FOR) ->
		rs[l] = 1; forget_answer(l);
		if :: live[l] == be && !orph[l] -> rnn[l] = cn[l]; if :: rdl[l] > dl[l] -> dl[l] = rdl[l] :: else fi :: else fi /* adopted */
	:: else -> rs[l] = 2
	fi;
	as[l] = HELD
}

/* Is a lease of the run that lane l found over for certain? (expressions, as they stand in guards) */
#define SEEN_OUT(v, l) (!nd[W(v,l)] && sw[W(v,l)] == 0 && (v) != (l))
#define OVER(l) (WAIT_RULE == 0 || tw[l] == 0 \
	|| (WAIT_RULE == 1 && brl != NONE && ever[W(l,brl)] && sw[W(l,brl)] == 0) \
	|| (WAIT_RULE == 3 && lr[l] != NONE && SEEN_OUT(l, lr[l])))

inline start(l, e) {
	for (i : 0 .. NL-1) { assert(live[i] == 0) }; i = 0 /* OVERLAP: two runs of one task live at once */
	assert(!(started & (1 << e))); /* TWICE: a pair (task, epoch) is started again */
	assert(READBACK_RUN < 2 || (events & (1 << e))); /* HISTORY: what is acted on is there as a whole, its history event too */
	started = started | (1 << e);
	live[l] = e; rnn[l] = cn[l]; rdl[l] = dl[l]; orph[l] = 0; lively = 1
}

/* What was offered was confirmed: act on it. */
inline act(l) {
	if
	:: tr[l] -> rst[l] = 0; if :: READBACK_RENEW == 2 -> extend(l, rb[l], tn[l]) :: else fi; rb[l] = 0
	:: else
	fi;
	if
	:: (tk[l] == K_RUN || (tk[l] == K_MARK && pk[l] == K_RUN)) && as[l] == HELD && cn[l] == tn[l] ->
		if
		:: READBACK_RUN == 2 && DEADLINE_OK(l) -> printf("lane %d starts epoch %d, deadline in %d\n", l, ep[l]+1, dl[l]); start(l, ep[l]+1)
		:: else /* refused by the guard: interrupted */
		fi;
		ep[l]++; rs[l] = 1
	:: (tk[l] == K_END || (tk[l] == K_MARK && pk[l] == K_END)) && as[l] == HELD && cn[l] == tn[l] -> rs[l] = 0
	:: tk[l] == K_REL && as[l] == RELEASING -> as[l] = GONE
	:: else
	fi;
	if :: tk[l] != K_NEW -> pk[l] = 0; pn[l] = 0; wr[l] = 0 :: else fi;
	tx[l] = NO; forget_offer(l)
}

/* The next producer of the ring takes a transaction. SPLIT: only its first record, which is flushed (or LATE: not). */
inline begin(l, k, n, e, renew) {
	at[l] = (at[l] + 1) % RING; tk[l] = k; tn[l] = n; tr[l] = renew; acc[l] = 0; vis[l] = 0; visw[l] = 0; cs[NOW(l)] = 1;
	if :: renew -> lrec[NOW(l)] = 1; rst[l] = 1; rb[l] = TTL; if :: READBACK_RENEW == 0 -> extend(l, rb[l], n) :: else fi :: else fi;
	if :: (k < K_NEW) && !(LATE && k == K_RUN) -> append(k, NOW(l), n, e) :: else fi;
	if
	:: SPLIT -> tx[l] = (STRAYS && k == K_RUN -> BEGUN : READY); if :: !STRAYS && k == K_RUN -> his[NOW(l)] = e :: else fi
	:: else -> if :: k == K_RUN -> his[NOW(l)] = e :: else fi; accept(l); sen[NOW(l)] = SENTINEL; tx[l] = TOEND
	fi
}

/* The offsets are accepted; where a copy ended the transaction meanwhile, they open a new one. */
inline accept(l) { cs[NOW(l)] = 1; pend[NOW(l)] = 1; acc[l] = 1 }

inline refuse(l) {
	decide(NOW(l), 0); tx[l] = NO;
	if
	:: tk[l] == K_NONCE && as[l] == FENCING -> again(l)
	:: tk[l] == K_REL && as[l] == RELEASING -> as[l] = GONE
	:: else
	fi;
	forget_offer(l)
}

/* -- what a lane does --------------------------------------------------------------------------------------------- */
inline lane(l) {
	if
	/* the group, as the client shows it between transactions */
	:: d_step { !member[l] && as[l] == OUT && FREE(l) && nn <= MAXN -> member[l] = 1; cl[l] = 0; dist[l] = 0; printf("lane %d joins the group\n", l) }
	:: d_step { !VALID_META && !member[l] && !cl[l] && as[l] != OUT -> cl[l] = 1; printf("lane %d: its client learns that it was thrown out\n", l) }
	:: d_step { !member[l] && as[l] != OUT && FREE(l) -> leave(l); cl[l] = 0; printf("lane %d is told that it lost p\n", l) }

	/* step 1: what is in doubt is decided; earlier holders' producers are ended; committed is asked until it is stable */
	:: d_step { as[l] == ASKING && SETTLE_FIRST && tx[l] == DOUBT && EACH(CLEAN, l) -> fence_ring(l); remake_ring(l); tx[l] = NO; forget_offer(l); printf("lane %d makes its ring again before it asks\n", l) }
#if !SETTLE_FIRST
	:: d_step { as[l] == ASKING && tx[l] == DOUBT -> tx[l] = NO; forget_offer(l); printf("lane %d leaves it in doubt\n", l) }
	:: d_step { tx[l] == NO && as[l] == FENCING && cs[NEXT(l)] == 1 -> fence(NEXT(l)); remake(NEXT(l)); printf("lane %d makes its next producer again\n", l) }
#endif
	:: d_step { QUESTION && as[l] == ASKING && END_HOLDERS && TO_END(l) && !qd[l] && member[l] && tx[l] == NO && EACH(QUIET, l) -> qd[l] = 1; printf("lane %d is counted in\n", l) }
	:: d_step { as[l] == ASKING && END_HOLDERS && TO_END(l) && (qd[l] || !QUESTION) ->
		if :: !member[l] -> dist[l]++ :: else fi;
		assert(dist[l] < 2); /* DISTURBED: one that was thrown out ends its successors' producers again and again */
		for (i : 0 .. NL-1) { if :: TO_END(l) & (1 << i) -> fence_ring(i); em[l] = em[l] | (1 << i); printf("lane %d ends the producers of lane %d\n", l, i) :: else fi }; i = 0 }
	:: d_step { as[l] == ASKING && !(END_HOLDERS && TO_END(l)) && (ALL(STEADY) || !STABLE) && nn <= MAXN && !(SETTLE_FIRST && tx[l] == DOUBT) ->
		for (i : 0 .. NL-1) { nd[W(l,i)] = uns[W(l,i)] }; i = 0;
		tw[l] = WAIT; lr[l] = lastr; printf("lane %d: step 1 done\n", l);
		if :: !FENCE_TXN -> cn[l] = nn; nn++; bl = l; bn = cn[l]; um = um | (1 << l); restore(l) :: else -> as[l] = FENCING fi }

	/* step 2 and 3: a fence with a fresh nonce, read back; a holder that step 1 could not know of sends it back */
	:: d_step { as[l] == FENCING && cn[l] == 0 && MAY_BEGIN(l) && nn <= MAXN && (SPLIT || ACCEPTED(l)) ->
		cn[l] = nn; nn++; begin(l, K_NONCE, cn[l], 0, 0); printf("lane %d: fence, nonce %d sent\n", l, cn[l]) }
	:: d_step { as[l] == FENCING && cn[l] == 0 && MAY_BEGIN(l) && !SPLIT && !ACCEPTED(l) -> again(l); printf("lane %d: its fence is refused\n", l) }
	:: d_step { tx[l] == YES && tk[l] == K_NONCE && vis[l] && as[l] == FENCING ->
		tx[l] = NO; forget_offer(l);
		if
		:: bn != cn[l] -> again(l); printf("lane %d reads another nonce behind its own\n", l)
		:: bn == cn[l] && END_HOLDERS == 2 && TO_END(l) -> as[l] = ASKING; cn[l] = 0; printf("lane %d reads of a holder that it did not know\n", l)
		:: else -> restore(l); printf("lane %d holds p under nonce %d, task %d\n", l, cn[l], rs[l])
		fi }

	/* step 4 ends: the run that was found is recorded as interrupted, with the next start or alone */
	:: d_step { as[l] == HELD && rs[l] == 2 && OVER(l) -> rs[l] = 1; forget_answer(l); printf("lane %d waited long enough\n", l) }

	/* a start, with a renewal, or without one while an earlier one counts; a renewal alone; an end */
	:: d_step { as[l] == HELD && rs[l] != 2 && pk[l] == 0 && (live[l] == 0 || orph[l]) && ep[l] < MAXE && MAY_BEGIN(l) && !(calm && started & (1 << (ep[l]+1))) && (SPLIT || member[l] || ACCEPTED(l)) ->
		pk[l] = K_RUN; pn[l] = cn[l]; wr[l] = 0; begin(l, K_RUN, cn[l], ep[l]+1, 1); printf("lane %d: RUNNING epoch %d sent, with a renewal\n", l, ep[l]+1);
		if :: READBACK_RUN == 0 && DEADLINE_OK(l) -> start(l, ep[l]+1) :: else fi }
	:: d_step { as[l] == HELD && rs[l] != 2 && pk[l] == 0 && (live[l] == 0 || orph[l]) && ep[l] < MAXE && MAY_BEGIN(l) && dl[l] > 0 && !calm && (SPLIT || ACCEPTED(l)) ->
		pk[l] = K_RUN; pn[l] = cn[l]; wr[l] = 0; begin(l, K_RUN, cn[l], ep[l]+1, 0); printf("lane %d: RUNNING epoch %d sent\n", l, ep[l]+1);
		if :: READBACK_RUN == 0 && DEADLINE_OK(l) -> start(l, ep[l]+1) :: else fi }
	:: d_step { as[l] == HELD && pk[l] == 0 && MAY_BEGIN(l) && !(calm && dl[l] > 1) && (SPLIT || ACCEPTED(l)) -> begin(l, K_NEW, cn[l], 0, 1); printf("lane %d: renewal sent\n", l) }
	:: d_step { as[l] == HELD && rs[l] == 1 && pk[l] == 0 && (live[l] == 0 || orph[l]) && ep[l] && MAY_BEGIN(l) && !calm && (SPLIT || ACCEPTED(l)) ->
		pk[l] = K_END; pn[l] = cn[l]; wr[l] = 0; begin(l, K_END, cn[l], ep[l], 0); printf("lane %d: end of epoch %d sent\n", l, ep[l]) }
	/* the same again, or only the offsets where it is written already */
	:: d_step { pk[l] && tx[l] == NO && (as[l] == HELD || !CHECK) && HOLDS(l, pn[l]) && MAY_BEGIN(l) && (SPLIT || ACCEPTED(l)) ->
		if
		:: wr[l] -> begin(l, K_MARK, pn[l], 0, (pk[l] == K_RUN)); printf("lane %d: offsets of what was written\n", l)
		:: !wr[l] && pk[l] == K_RUN -> begin(l, K_RUN, pn[l], ep[l]+1, 1); printf("lane %d offers RUNNING epoch %d again\n", l, ep[l]+1)
		:: else -> begin(l, K_END, pn[l], ep[l], 0); printf("lane %d offers the end of epoch %d again\n", l, ep[l])
		fi }
	:: d_step { live[l] -> printf("lane %d: run %d ends\n", l, live[l]); gone(l) }

	/* steps of a transaction */
#if SPLIT
	:: d_step { tx[l] == BEGUN && CLEAN(NOW(l)) && !fenced[NOW(l)] -> his[NOW(l)] = ep[l]+1; cs[NOW(l)] = 1; tx[l] = READY; printf("lane %d: history event sent\n", l) }
	:: d_step { tx[l] == READY && CLEAN(NOW(l)) && !fenced[NOW(l)] && ACCEPTED(l) && HOLDS(l, tn[l]) -> accept(l); tx[l] = TOLD; printf("lane %d: offsets accepted\n", l) }
	:: d_step { tx[l] == READY && CLEAN(NOW(l)) && !fenced[NOW(l)] && !(ACCEPTED(l) && HOLDS(l, tn[l])) -> printf("lane %d: offsets refused, aborts\n", l); refuse(l) }
	:: d_step { tx[l] == TOLD && CLEAN(NOW(l)) && !fenced[NOW(l)] && size < 4 ->
		if
		:: LATE && tk[l] == K_RUN -> append(K_RUN, NOW(l), tn[l], ep[l]+1); sen[NOW(l)] = SENTINEL; tx[l] = TOEND; printf("lane %d: its record reaches the broker\n", l)
		:: else ->
			if
			:: SENTINEL && !((tk[l] < K_NEW && rec[NOW(l)]) || (tk[l] >= K_NEW && (lrec[NOW(l)] || !tr[l]))) -> printf("lane %d: sentinel refused, aborts\n", l); refuse(l)
			:: else -> sen[NOW(l)] = SENTINEL; tx[l] = TOEND; printf("lane %d: sentinel sent\n", l)
			fi
		fi }
#endif
#if STRAYS
	:: d_step { FAULT && tx[l] == TOEND && cs[NOW(l)] == 1 && !stray[NOW(l)] && !fenced[NOW(l)] ->
		faults--; tx[l] = YES; stray[NOW(l)] = 1; decide(NOW(l), 1); printf("FAULT lane %d: commit, a copy stays in the network\n", l) }
	:: d_step { FAULT && tx[l] > NO && tx[l] <= TOLD && cs[NOW(l)] == 1 && !stray[NOW(l)] && !fenced[NOW(l)] ->
		faults--; stray[NOW(l)] = 2; refuse(l); printf("FAULT lane %d aborts, a copy stays in the network\n", l) }
#endif
	:: d_step { tx[l] == TOEND && CLEAN(NOW(l)) && !fenced[NOW(l)] ->
		decide(NOW(l), 1); tx[l] = YES; printf("lane %d: commit\n", l);
		if
		:: READBACK_RUN == 1 && tk[l] == K_RUN && MAY_ACT(l) -> printf("lane %d starts epoch %d, as the client said yes\n", l, ep[l]+1); start(l, ep[l]+1)
		:: else
		fi }
#if UNCLEAR
	:: d_step { FAULT && tx[l] == TOEND && CLEAN(NOW(l)) && !fenced[NOW(l)] -> faults--; decide(NOW(l), 1); tx[l] = DOUBT; printf("FAULT lane %d: commit, the answer is lost\n", l) }
	:: d_step { FAULT && tx[l] == TOEND && CLEAN(NOW(l)) && !fenced[NOW(l)] -> faults--; tx[l] = DOUBT; printf("FAULT lane %d: commit, lost on its way\n", l) }
#endif
	/* read back: act on it; or it does not come */
	:: d_step { tx[l] == YES && tk[l] != K_NONCE && (tk[l] >= K_NEW || (vis[l] && (visw[l] || !SENTINEL))) && (!tr[l] || (rst[l] == 2 && !hid[l])) ->
		printf("lane %d reads back what it wrote\n", l); act(l) }
	:: d_step { tx[l] == YES && !calm && cs[NOW(l)] == 0 && tk[l] < K_NEW && !OWN_LOG(l) && (!vis[l] || (SENTINEL && !visw[l])) -> tx[l] = DOUBT; printf("lane %d: it does not come back\n", l) }
	:: d_step { tx[l] == YES && !calm && tr[l] && (rst[l] != 2 || hid[l]) -> tx[l] = DOUBT; printf("lane %d: its renewal does not come back\n", l) }
	/* in doubt: the ring is made again, which decides all it did; the log is read to its end; the same is offered again */
	:: d_step { SETTLE && tx[l] == DOUBT && !(as[l] == ASKING && SETTLE_FIRST) && (EACH(CLEAN, l)) && !EACH(QUIET, l) -> fence_ring(l); remake_ring(l); printf("lane %d makes its ring again\n", l) }
	:: d_step { tx[l] == DOUBT && (!SETTLE || (EACH(QUIET, l) && !OWN_LOG(l))) ->
		remake_ring(l); if :: rst[l] == 2 -> rst[l] = 0; rb[l] = 0 :: else fi;
		wr[l] = (pk[l] && (wr[l] || (vis[l] && (SENTINEL -> visw[l] : acc[l])))); tx[l] = NO; printf("lane %d knows: %d\n", l, wr[l]);
		if
		:: tk[l] == K_NONCE && as[l] == FENCING -> again(l)
		:: tk[l] == K_REL && as[l] == RELEASING -> as[l] = GONE
		:: else
		fi;
		forget_offer(l) }
	/* fenced: a new ring, and step 1 again */
	:: d_step { ANY(FENCED, l) && EACH(CLEAN, l) && (tx[l] == NO || tx[l] == DOUBT || fenced[NOW(l)]) ->
		printf("lane %d finds its ring fenced\n", l); fence_ring(l); remake_ring(l); tx[l] = NO; forget_offer(l); if :: rst[l] == 2 -> rst[l] = 0; rb[l] = 0 :: else fi;
		if
		:: as[l] == RELEASING || as[l] == GONE -> as[l] = GONE
		:: as[l] != OUT && as[l] < RELEASING -> again(l)
		:: else
		fi }

	/* a later nonce than the own one */
	:: d_step { FOREIGN && as[l] == HELD && bn != cn[l] && FREE(l) -> again(l); printf("lane %d sees nonce %d of lane %d: starts over\n", l, bn, bl) }

	/* giving p away: runs ended and recorded, nothing waited for, then "released"; or without it */
	:: d_step { rv && MINE_NOW(l) && as[l] == HELD && tx[l] == NO && pk[l] == 0 && ((live[l] == 0 && rs[l] != 1) || !REL_DRAINED) && (rs[l] != 2 || !REL_WAITED) ->
		as[l] = RELEASING; rs[l] = 0; forget_answer(l); printf("lane %d is drained\n", l) }
	:: d_step { as[l] == RELEASING && MAY_BEGIN(l) && tk[l] == 0 && (SPLIT || ACCEPTED(l)) -> begin(l, K_REL, cn[l], 0, 0); printf("lane %d: released sent\n", l) }
	:: d_step { rv && MINE_NOW(l) && FREE(l) && as[l] != OUT && (as[l] == GONE || !calm || as[l] < HELD) -> rv = 0; owner = NONE; leave(l); printf("lane %d gives p up\n", l) }
	fi
}

/* -- what brokers, network and watchers do ------------------------------------------------------------------------ */
inline producer(p) {
	if
	:: d_step { cs[p] == 2 && rec[p] -> mark_log(p); printf("marker of lane %d on p's log\n", (p)/RING) }
	:: d_step { cs[p] == 2 && lrec[p] -> mark_lease(p); printf("marker of lane %d on its lease log\n", (p)/RING) }
	:: d_step { !member[(p)/RING] && cs[p] == 1 -> fence(p); printf("a transaction of lane %d times out\n", (p)/RING) }
	:: d_step { FAULT && !fenced[p] && cs[p] == 1 -> faults--; fence(p); printf("FAULT a transaction of lane %d times out\n", (p)/RING) }
	:: d_step { STRAYS && stray[p] && !calm -> decide(p, (stray[p] == 1)); stray[p] = 0; printf("FAULT a copy of an end arrives at lane %d's producer\n", (p)/RING) }
	fi
}

inline watcher(v, l) {
	if
	:: d_step { uns[W(v,l)] && !ANY(LEASING, l) && !hid[l] -> uns[W(v,l)] = 0; nd[W(v,l)] = 0; ever[W(v,l)] = (WAIT_RULE == 1); sw[W(v,l)] = WAIT; printf("lane %d sees lane %d's renewal\n", v, l) }
	:: d_step { DRIFT && uns[W(v,l)] && !ANY(LEASING, l) && !hid[l] -> uns[W(v,l)] = 0; nd[W(v,l)] = 0; ever[W(v,l)] = (WAIT_RULE == 1); sw[W(v,l)] = WAIT - 1; printf("lane %d sees lane %d's renewal, on a fast clock\n", v, l) }
	fi
}

inline around(l) {
	if
	:: d_step { owner == NONE && member[l] && nn <= MAXN && as[l] == OUT && FREE(l) -> owner = l; as[l] = ASKING; printf("lane %d is assigned p\n", l) }
	:: d_step { hid[l] -> hid[l] = 0; printf("the lease log of lane %d is readable again\n", l) }
	:: d_step { FAULT && member[l] && as[l] != OUT -> faults--; member[l] = 0; cl[l] = 0; if :: owner == l -> owner = NONE; rv = 0 :: else fi; printf("FAULT the group throws lane %d out\n", l) }
	:: d_step { FAULT && owner == l && !rv && as[l] != OUT -> faults--; rv = 1; printf("p is wanted back from lane %d\n", l) }
	:: d_step { HIDE && FAULT && !hid[l] -> faults--; hid[l] = 1; printf("FAULT the lease log of lane %d is hidden\n", l) }
	:: d_step { CRASH && FAULT && as[l] != OUT && live[l] && !orph[l] && EACH(CLEAN, l) -> faults--;
		fence_ring(l); remake_ring(l); leave(l); orph[l] = 1; dl[l] = 0; cl[l] = 0; member[l] = 0; tx[l] = NO; forget_offer(l); pk[l] = 0; pn[l] = 0; wr[l] = 0;
		rst[l] = 0; rb[l] = 0; if :: brl == l -> bold = 1 :: else fi;
		do :: z < size -> if :: lp[z]/RING == l -> lo[z] = 1 :: else fi; z++ :: else -> break od; z = 0;
		if :: owner == l -> owner = NONE; rv = 0 :: else fi; printf("FAULT lane %d is frozen with its run alive; a new process takes its place\n", l) }
#if OTHERS
	:: d_step { member[l] && as[l] != HELD && as[l] != FENCING && MAY_BEGIN(l) && pk[l] == 0 && !SPLIT ->
		at[l] = (at[l] + 1) % RING; tk[l] = K_NEW; tn[l] = 0; tr[l] = 1; rst[l] = 2; rb[l] = TTL; tx[l] = YES; printf("lane %d renews for its other partitions\n", l) }
#endif
#if DRIFT
	:: d_step { rb[l] == TTL && rst[l] == 1 && !calm -> rb[l] = TTL + 1; printf("lane %d: on a slow clock\n", l) }
	:: d_step { tw[l] == WAIT -> tw[l] = WAIT - 1; printf("lane %d: on a fast clock\n", l) }
#endif
	fi
}

/* One tick. Kills are due before it is over. */
inline tick() {
	for (i : 0 .. NL-1) {
		if :: dl[i] -> dl[i]-- :: else fi;
		if :: rb[i] -> rb[i]-- :: else fi;
		if :: tw[i] -> tw[i]-- :: else fi;
		if
		:: rdl[i] -> rdl[i]--; if :: DEADLINE && rdl[i] == 0 && live[i] -> gone(i); printf("the guard of lane %d ends its run\n", i) :: else fi
		:: else
		fi
	}; i = 0;
	for (i : 0 .. NL*NL-1) { if :: sw[i] -> sw[i]-- :: else fi }; i = 0
}

active proctype world() {
	d_step { for (i : 0 .. NL-1) { lr[i] = NONE }; i = 0 }
	do
	:: lane(0)
	:: lane(1)
	:: around(0)
	:: around(1)
	:: producer(P(0,0))
	:: producer(P(1,0))
#if RING > 1
	:: producer(P(0,1))
	:: producer(P(1,1))
#endif
	:: watcher(0, 1)
	:: watcher(1, 0)
#if NL > 2
	:: lane(2)
	:: around(2)
	:: producer(P(2,0))
#if RING > 1
	:: producer(P(2,1))
#endif
	:: watcher(0, 2)
	:: watcher(1, 2)
	:: watcher(2, 0)
	:: watcher(2, 1)
#endif
	:: d_step { !calm -> tick(); printf("-- tick\n") }
#if LIVE
	/* Faults stop. From here on whatever can be done is done before time passes. */
	:: d_step { !calm -> calm = 1; lively = 0; printf("-- calm from here on\n") }
	:: timeout -> d_step { tick(); ct++; printf("-- tick\n");
		assert(lively || be >= MAXE || nn > MAXN || ct <= LIVE) } /* PROGRESS: once faults have stopped, a run starts */
#endif
	od
}
