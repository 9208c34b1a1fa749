// Package layout is what the server of the bus and its clients must agree on: where messages are kept, and which names
// are NATS' own.
package layout

// The streams of the bus; kubelot-bus creates them.
const (
	StreamState    = "STATE"
	StreamOwn      = "OWN"
	StreamHistory  = "HISTORY"
	StreamEvent    = "EVENT"
	StreamPosition = "POSITION"
)

// HistoryPrefix is put before a state's subject to get the subject of its copy in HISTORY, which has the replaced
// values and the tombstones too.
const HistoryPrefix = "history."

// ReaderPrefix begins the name of each reader (a consumer of a stream); the daemon's name, a dash and letters of its
// own follow.
const ReaderPrefix = "kubelot-"

// RefusedPrefix begins the subject, of a message or a subscription, that the bus has refused before the server saw it.
// Nobody may publish or subscribe there, so that the server tells the client, who finds its own subject behind it.
const RefusedPrefix = "_REFUSED."

// ReplacePrefix is put before a state's subject to get the one on which the bus takes a value of a key that it has
// already, when its store is full. It answers as JetStream does.
const ReplacePrefix = "_REPLACE."

// FillPrefix is put before a stream's name to get the subject where the bus itself publishes what fills a block of it.
// It is no topic, and nobody else may publish or read there.
const FillPrefix = "_FILL."

// ReplaceBy is the header with the time, in milliseconds since 1970, after which the bus must not store such a value:
// its writer may have said a newer one.
const ReplaceBy = "Kubelot-Replace-By"

// ErrFull is JetStream's code for a store that has no room for a message.
const ErrFull = 10023

// NATSPrefix begins the names of the headers that the server acts on itself. NATSTTL says how long it keeps a message,
// in seconds, NATSExpected has it store a message only if that is the sequence of its subject's last one, and
// NATSStalled asks a reader that has stalled to go on.
const (
	NATSPrefix   = "Nats-"
	NATSTTL      = NATSPrefix + "TTL"
	NATSExpected = NATSPrefix + "Expected-Last-Subject-Sequence"
	NATSStalled  = NATSPrefix + "Consumer-Stalled"
)
