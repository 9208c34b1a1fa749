// Package auth decides who may do what at the node's HTTPS API: client certificates and TokenReview say who somebody
// is, SubjectAccessReview what he may do. The work is k8s.io/apiserver's delegating packages'; this package says what a
// request means to them.
//
// # Guarantees
//
// No request passes that nobody vouches for, unless the configuration lets anonymous ones in. What can't be
// found out is refused.
//
// Source: Kubernetes documentation, Kubelet authentication/authorization; KEP-2862 (fine-grained authorization).
package auth
