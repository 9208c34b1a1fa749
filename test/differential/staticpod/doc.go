// Package staticpod compares kubelot's handling of manifests with the code of Kubernetes itself: UID,
// defaults and verdict for manifests written by hand and for thousands of random pods.
package staticpod
