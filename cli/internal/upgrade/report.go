package upgrade

// Outcome is what has become of a daemon, or would become of it in a dry run.
type Outcome string

// The outcomes.
const (
	Unchanged Outcome = "unchanged" // it ran the version before
	Moved     Outcome = "moved"     // it runs the version
	Started   Outcome = "started"   // it is new in the version, and runs
	Stopped   Outcome = "stopped"   // the version, which is older, hasn't got it
	Link      Outcome = "link"      // it doesn't run: only its link leads to the version
	Back      Outcome = "back"      // it wasn't well, and was to run again what it ran before, or nothing
)

// commandName is the daemon of a step that is about the command line itself.
const commandName = "kubelot"

// Step is what happened to a daemon.
type Step struct {
	// Daemon is its name without kubelot-, and kubelot for the command line.
	Daemon  string  `json:"daemon"`
	Outcome Outcome `json:"outcome"`
	// From and To are the targets of its link: as it was before, empty if there was none, and that of the version, empty
	// if that has no such daemon.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Text says it to a person.
	Text string `json:"text"`
}

// Report is what an upgrade did, or with a dry run would do.
type Report struct {
	// Version is what the new executables say; empty if it isn't known.
	Version string `json:"version,omitempty"`
	DryRun  bool   `json:"dryRun,omitempty"`
	// Steps are in the order in which they happened.
	Steps []Step `json:"steps"`
	// Error says why not all daemons run the version; empty if they do.
	Error string `json:"error,omitempty"`
}

// outcome is what becomes of a daemon if all goes well.
func (m move) outcome() Outcome {
	switch m.kind {
	case fresh:
		return Started
	case gone:
		return Stopped
	case idle:
		return Link
	}
	return Moved
}
