// Package packages has the tests of kubelot's packages on Debian, without a virtual machine: in a chroot without
// systemd, and in a container in which systemd is the first process. make packages-test builds the packages and runs
// them, as root.
//
// Reads: the packages that the environment names. Writes and owns: .cache/packages with the two Debian systems as they
// were made, and .run/packages-test/systems with those that the tests run.
//
// Guarantees: a test leaves no process, no mount and no file behind. If it was killed, its next run clears them.
package packages
