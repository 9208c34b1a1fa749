// Package registry finds the plugins of the node: CSI drivers, DRA drivers and device plugins that have a socket in the
// kubelet's directory plugins_registry (pluginregistration.v1).
//
// scan.go looks for sockets, book.go is what is known of them with the pure decisions on it, validate.go judges what a
// plugin says of itself, handshake.go speaks with one plugin, and registry.go is the goroutine that owns the book.
//
// # Reads
//
// The directory; its own plugin.registered, once after the start.
//
// # Writes
//
// plugin.registered.
//
// # Owns
//
// The directory plugins_registry, but not the sockets in it: these are their plugins'.
//
// # Guarantees
//
//   - A socket that appears is spoken to at once. One that was made again is another one and registers again. Without
//     inotify it takes a second.
//   - A plugin that doesn't answer, or answers nonsense, holds up no other: 16 new ones are spoken to at
//     a time, the newest first, each with a limit of time and of size.
//   - A plugin hears that it is registered after it was published. If it can't be told, it isn't registered, and all of
//     it is tried again.
//   - What an earlier process has published stays until the socket is gone, its plugin is refused, or another CSI
//     driver of its name comes and it doesn't answer. A driver that was killed loses its name to the next of that name.
package registry
