// Package container decides which dead containers and sandboxes go.
//
// # Guarantees
//
//   - A container that is created, runs or can't be told is no dead one, and a sandbox that is ready none either: those of pods
//     that nobody wants are podsync's to end.
//   - Of each container of a pod that exists the newest dead ones are kept, one by default, for its logs and its last state.
//   - A pod that exists keeps its newest sandbox.
//   - What is younger than MinAge (sandboxes, and what belongs to pods that are gone) stays: the news of its pod may be on the way.
package container
