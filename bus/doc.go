// Package bus is what kubelot's daemons say to each other with: topics that bind a subject to a Go
// type, contracts that list who writes and reads what, and the connection that carries them.
//
// A topic is a state (the last value of each key is kept and handed to every new reader first), an
// event (a bounded history and nothing else) or a call (a request with one reply). All topics are
// listed in package topic. Bytes travel through a Transport: package nats is the client of
// kubelot-bus, package bustest an in-memory twin for unit tests. Both pass package bussuite.
//
// # Reads and writes
//
// The package itself reads and writes nothing. A daemon's Contract says what it may.
//
// # Owns
//
// A Conn owns its writers and publishers; a Watch, a Subscribe and a Serve live as long as their context.
//
// # Guarantees
//
//   - A state reader gets every key's last value, then Synced, then changes. It may miss values that
//     were overwritten meanwhile, never the last one, over any number of reconnections.
//   - A Writer never waits for the bus, sends each key's last value as soon as it can, and sends all
//     of them again when the bus was away, since the bus may have lost them.
//   - Events of one publisher arrive in order. A doubled event is possible, as after a lost acknowledgement.
//   - A payload that can't be decoded is logged and left out; readers go on.
//   - What a contract doesn't allow ends in ErrDenied and a log line, not in a time-out.
package bus
