// Package recheck feeds a recording of the bus to the pure cores of this version, and finds where they decide otherwise
// than was recorded.
//
// # Reads
//
// A recording (package recording of module cli): the inputs of the decisions, and the decisions.
//
// # Guarantees
//
//   - No difference without a reason: a recorded decision counts as the same if it follows from any state of its inputs
//     within the time that messages may have taken. What depends on inputs that aren't in the recording isn't judged.
//     It is counted, with the reason.
//   - Each decision is judged by itself, from what was recorded before. One difference causes no others, but that a
//     plan says for what a container waits, which is a part of the status.
//   - Nothing is changed, and no daemon is asked.
//
// # Files
//
// story.go and track.go are what a recording says. runtime.go and facts.go are what podsync knew. merge.go, plan.go,
// ahead.go, ends.go, status.go, diff.go, pick.go, evict.go and sources.go judge one core each. report.go is the answer.
package recheck
