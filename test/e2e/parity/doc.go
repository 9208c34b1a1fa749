// Package parity runs the same pods under the upstream kubelet and under kubelot, in one bed, and compares what a user
// sees of them: the pods' status and the Events. What differs by intention is listed with its reason.
package parity
