// Package bus is how kubelot's daemons talk to each other. It has topics, which bind a subject to a Go type, contracts,
// which list who writes and reads what, and the connection that carries the messages.
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
//   - A state reader gets every key's last value, then Synced, then changes. It may miss a value that is overwritten
//     soon, but never the last one, over any number of reconnections.
//   - A Writer never waits for the bus, sends each key's last value as soon as it can, and sends all
//     of them again when the bus was away, since the bus may have lost them. It knows what an earlier process of its
//     daemon has said, and then removes keys that it doesn't know. A bus that was killed may show such keys until then,
//     for about a second.
//   - Events of one publisher arrive in order. A doubled event is possible, as after a lost acknowledgement.
//   - A payload that can't be decoded is logged and skipped. Readers go on.
//   - A message in a schema that the reader doesn't know isn't decoded. That is logged once, with what to upgrade, and
//     Conn.OnUnreadable is told; docs/adr/0028.
//   - A call's error has a kind (not found, refused, invalid, busy, unavailable) that errors.Is finds at the caller;
//     docs/adr/0020.
//   - What a contract doesn't allow fails with ErrDenied and a log line, not with a time-out.
package bus
