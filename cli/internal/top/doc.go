// Package top is the full-screen view of a node in a terminal: its daemons, its pods and the node itself.
//
// # Reads
//
// Pictures of package live, the keyboard, the containers' logs on this node, the journal.
//
// # Guarantees
//
//   - Looking changes nothing.
//   - The screen is a pure function of the last picture, the size of the terminal and the keys that were pressed.
//   - No line is wider than the terminal, and none is lost below it. Texts of containers, runtimes and registries can't
//     move the cursor.
//   - Nothing is told by colour alone.
package top
