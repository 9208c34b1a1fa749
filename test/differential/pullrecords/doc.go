// Package pullrecords compares kubelot's records of image pulls, and its verdicts on pods that want images, with
// Kubernetes' own code (KEP-2535): both live through the same random lives on the same node, and read what the other
// has written.
package pullrecords
