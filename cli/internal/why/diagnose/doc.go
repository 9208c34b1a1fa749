// Package diagnose takes apart the errors of registries, container runtimes, network plugins and storage, and says in a
// person's words what is wrong and what to do.
//
// # Reads
//
// Texts, and the names of the objects that they are about. Nothing else.
//
// # Guarantees
//
//   - All functions are pure.
//   - A text that no rule knows yields its innermost part, which is what differs from one failure to the next.
//     Nothing is guessed.
//   - A Finding's texts have one line each if the names have.
package diagnose
