// Package settings says what each setting of a node's configuration does in kubelot: the fields of KubeletConfiguration
// and the flags.
//
// # Reads
//
// The files of the configuration, the units' flags, and the command lines of the daemons that run (/proc). From the
// daemons: whether they run with what the files have.
//
// # Guarantees
//
//   - A configuration has an error here exactly if no daemon starts with it, since the daemons' own decoder reads it.
//   - What is said to have no effect is what the daemons warn of.
//   - Nothing is changed, except by ReloadCrew, and values that authenticate the node to others are hidden.
package settings
