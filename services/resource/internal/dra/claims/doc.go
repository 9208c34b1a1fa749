// Package claims decides about ResourceClaims (resource.k8s.io/v1): which ones a pod needs, whether it may use them,
// what is to be done about each, and what each container gets of them. It has no clock, context or I/O.
//
// needs.go reads a pod, check.go judges an object of the API server, book.go has what is known of all claims, plan.go
// says what is due for a pod, answer.go takes what drivers say, and containers.go what containers get.
//
// # Guarantees
//
//   - A driver is to be called about a claim only when every driver of the pod is there and nobody calls it about the
//     claim.
//   - A driver that may have prepared a claim is to be told when the claim's last pod goes. The claim is in the book
//     until all its drivers have answered.
//   - A claim whose pods are all leaving, or have lost their reservation, is unprepared before it is prepared for
//     another pod: its allocation may be another one by then.
package claims
