// Package device gives pods block devices: a link for the runtime, and a loop device that holds the disk. Should the
// disk go away, no other one may come by its number while a container has the right to use that.
//
// # Owns
//
// The links in pods/<uid>/volumeDevices, and the files on which devices are bound for them, where its callers say.
//
// # Guarantees
//
//   - Make and Release may be repeated at any time, also after they were interrupted.
//   - Nothing but links, bind mounts, empty files and loop devices of the map is removed.
package device
