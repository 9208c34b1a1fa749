// Package csidriver is a CSI driver for tests: identity, controller and node service in one process, with its
// registration. Its volumes are files with a filesystem that loop devices make disks of, and directories for the
// volumes of a pod's own spec. csi-sanity proves it (sanity_test.go), so that what a test says of the node agent
// isn't a fault of the driver.
//
// It writes each call to calls.jsonl in its state directory, and reads from the directory faults there what is to go
// wrong, see Fault. Both survive its death, which is one of the faults.
package csidriver
