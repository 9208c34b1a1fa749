// Package gc shows garbage collection and eviction on beds of their own: under real memory pressure made by a hog, and
// on real filesystems that are full, made of loopback devices.
package gc
