package generation

// Step is what is due of a rebuild.
type Step string

// The steps, each with what the node that leads does.
const (
	StepWait    Step = "wait"    // nothing: nodes count, or an operator is to decide
	StepTidy    Step = "tidy"    // makes the slot empty that no generation has
	StepDrop    Step = "drop"    // Drop, of what was kept
	StepAbort   Step = "abort"   // Abort: EVENTS has lost its beginning
	StepCompare Step = "compare" // Compare: the new generation has caught up
	StepCheck   Step = "check"   // compares both with the log, and then Found
	StepSwitch  Step = "switch"  // Switch
	StepReplace Step = "replace" // Replace: what is counted again has caught up
)

// Seen is what the leader sees beside the record.
type Seen struct {
	Lacks    bool // EVENTS lacks its beginning, or is about to
	CaughtUp bool // the new generation is open here, and each of its shards is at the end of the log on all its holders
	Compared bool // this leader has compared each copy that is to serve; another one may have, and copies come back
	KeptLong bool // what is kept was kept for long enough, and nobody needs it
}

// Next is the step that is due. It is done by the node that leads, and the record is
// changed after it; a leader that comes later sees the same and does it again.
//
//	record    building    comparing                compared        switched     nothing kept
//	step due  compare ──► check ─────────────────► switch ───────► drop ──────► tidy
//	waits     until it has caught up               it differs:     until it was
//	                                               for accept      kept long
//	EVENTS lacks its beginning, and one is built: abort ──► tidy
func (s Set) Next(seen Seen) Step {
	switch {
	case s.Kept != 0 && seen.KeptLong:
		return StepDrop
	case s.Kept != 0:
		return StepWait
	case s.Building == 0:
		return StepTidy
	case seen.Lacks:
		return StepAbort
	case !seen.CaughtUp:
		return StepWait
	case s.Recounts():
		return StepReplace
	case s.State == Building:
		return StepCompare
	case !s.Compared, s.Differs == 0 && !s.Accept && !seen.Compared:
		return StepCheck
	case s.compared():
		return StepSwitch
	}
	return StepWait
}
