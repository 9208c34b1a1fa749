// Package image decides which images go, and remembers when each was seen and used.
//
// # Guarantees
//
//   - An image that a container has, of whatever state, or that the spec of a pod names that has not ended (its containers and
//     its image volumes) stays, and so does a pinned one, whatever the disk says.
//   - For space, images go in the order of their last use, those never used by their age; none younger than imageMinimumGCAge.
//   - What is remembered is kept in a file; without it every image counts as seen for the first time, which only delays.
package image
