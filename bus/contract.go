package bus

// Contract is what one daemon does on the bus, as data. docs/dataflow.md and the daemon's permissions are generated
// from it. The bus allows nothing else.
type Contract struct {
	// Daemon is the daemon's name without the "kubelot-" prefix, such as "podsync".
	Daemon string
	// Writes are the state and event topics of which this daemon is the only writer.
	Writes []Topic
	// Reads are the state and event topics it reads.
	Reads []Topic
	// Serves are the calls it answers.
	Serves []Topic
	// Calls are the calls it makes.
	Calls []Topic
}
