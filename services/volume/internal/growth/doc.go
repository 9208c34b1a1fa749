// Package growth says what a node does about a volume whose claim was made larger, and what it writes into the claim's
// status (KEP-556, and KEP-1790 for growth that failed). It does no I/O.
package growth
