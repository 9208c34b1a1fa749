// Package embed is the bus itself: a nats-server with JetStream inside kubelot-bus. No other package imports
// nats-server.
//
// # Reads
//
// Its options and the crew's contracts, which are built in as crew_gen.json.
//
// # Writes
//
// The unix socket, the private keys of the daemons (one file each, for the owner and the daemon's group, kept if they
// exist) and the store of the messages, normally all under /run/kubelot, a tmpfs.
//
// # Owns
//
// The streams STATE (the last value of each key), OWN (the same for states of which each daemon has its own key),
// HISTORY (a copy of every message of STATE, bounded), EVENT (history of events, bounded) and POSITION (how far durable
// readers are). Their limits derive from the size of the file system under the store. That of STATE also
// follows what is free of it.
//
// # Guarantees
//
//   - A daemon publishes what its contract lists as written. It reads what its contract lists as read, and what it
//     writes itself. Nothing else is allowed, even to a daemon that was taken over. The CLI reads everything and writes
//     nothing.
//   - An acknowledged message is in the store. It survives a restart of the bus, orderly or not, and is gone after a
//     reboot, as the containers are.
//   - A state's last value is never dropped to make room. The bus refuses new values instead, and keys are removed from
//     it all the same.
//   - At rest the states take little more room than their values.
//   - Removed keys leave nothing behind. A tombstone expires in less than a minute and doesn't block readers. A reader
//     that was away longer knows that a key was removed because it no longer finds it.
//   - A store of another version is removed and created again, with one log line. It is never tried twice. The writers
//     send their values again (docs/adr/0028).
//   - systemd's watchdog gets beats only while the embedded server answers.
//   - A damaged store loses only its content, which the writers send again. A full file system delays messages until
//     there is room. Meanwhile stored messages can be read, and kubelot-bus is Degraded.
//   - No TCP port is open unless asked for, and then on loopback only.
//   - A client that is slow, silent or sends garbage harms no other.
//
// The server's permissions limit a daemon to its subjects. The screen of the gate refuses what the permissions leave
// open (package screen, docs/adr/0026). Clients in the bus's own process don't pass the gate.
package embed
