// Package container decides which dead containers and sandboxes go.
//
// # Guarantees
//
//   - Only dead containers and sandboxes go: no container that is created, runs or is in an unknown state, and no
//     sandbox that is ready. podsync ends those of pods that nobody wants.
//   - A pod that exists keeps the newest dead instances of each container, one by default, for the logs and the last
//     state.
//   - A pod that exists keeps its newest sandbox.
//   - Sandboxes, and what belongs to pods that are gone, stay until they are older than minAge: the message about their
//     pod may be on the way.
package container
