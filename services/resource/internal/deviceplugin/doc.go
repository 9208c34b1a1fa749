// Package deviceplugin speaks with device plugins (v1beta1): it takes their registrations, follows their devices, and
// asks them when a container gets some.
//
// server.go owns the plugins, register.go is the service by which they register, announce.go connects to those that the
// registry of the volume daemon has found. plugin.go is the connection to one plugin, list.go what it says of its
// devices, calls.go what it is asked, convert.go what its answer means for a container. directory.go prepares the
// directory of the sockets. plugintest is a plugin for tests.
//
// # Reads
//
// Announced plugins, which its owner sets.
//
// # Writes
//
// Reports to its owner: the devices of a resource, and that its plugin is away.
//
// # Owns
//
//	device-plugins/kubelet.sock     the registration service
//	device-plugins/*.sock           at the start all sockets in the directory are removed: it is the sign at which
//	                                plugins register again
//
// # Guarantees
//
//   - A plugin that hangs, dies or answers nonsense holds up only its own resource. What it is asked has a limit of
//     time; what it says has a limit of size.
//   - Reports of a resource are in order. The last one of a plugin that is replaced comes before the first of the
//     other.
//   - A resource has one plugin, the one that registered last. Its predecessor's connection is closed. If the new one
//     can't be spoken to, the old one stays.
//   - A plugin that has registered at kubelet.sock and goes has to register again, as with the kubelet. One that was
//     announced is connected to again as long as its socket is there.
//   - When Run has returned, no goroutine and no connection is left. A daemon that stops reports nothing of it.
package deviceplugin
