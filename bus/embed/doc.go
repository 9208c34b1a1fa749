// Package embed is the bus itself: a nats-server with JetStream inside kubelot-bus. It is the only
// importer of nats-server.
//
// # Reads
//
// Its options and the crew's contracts, which are built in as crew_gen.json.
//
// # Writes
//
// The unix socket, the private keys of the daemons (one file each, mode 0600, kept if they exist) and
// the store of the messages, normally all under /run/kubelot, a tmpfs.
//
// # Owns
//
// The streams STATE (the last value of each key), OWN (the same for the states that each daemon has its own key of), HISTORY (a
// copy of every message of STATE, bounded), EVENT (history of events, bounded) and POSITION (how far durable readers are). Their
// limits derive from the size of the file system under the store.
//
// # Guarantees
//
//   - A daemon publishes what its contract lists as written and reads what it lists as read, and nothing
//     else; what it writes itself it may read too. The CLI reads everything and writes nothing.
//   - An acknowledged message is in the store: it survives a restart of the bus, orderly or not, and is
//     gone after a reboot, exactly as the containers are.
//   - A state's last value is never dropped for want of space: the bus refuses new ones instead.
//   - Keys that were removed leave nothing behind: a tombstone is gone after less than a minute, one by one, and holds up no
//     reader. A reader that was away longer learns of removed keys from what it no longer finds.
//   - A store that is damaged costs no more than its content, which the writers say again; a file system that was full delays
//     messages until there is room again; what is kept can be read meanwhile, and kubelot-bus is Degraded.
//   - No TCP port is open unless asked for, and then on loopback only.
//   - A client that is slow, silent or sends garbage harms no other.
//
// What a daemon may read is held by the subjects of the requests it may send. The address to which the
// bus delivers is the daemon's choice (that is how NATS works), so the permissions keep honest daemons
// to their contracts and strangers out; they don't contain a daemon that was taken over by root's enemy.
package embed
