// Package pulled knows whose credentials have brought the images that are on the node, and so which pods may use them.
//
// # Reads and writes
//
// The records below image_manager in the node's root directory, which are the kubelet's, in its format: a node that changes
// its agent keeps what is known. pulling/ has an ImagePullIntent for each pull that is under way or whose end nobody saw;
// pulled/ has an ImagePulledRecord for each image that was pulled.
//
// # Owns
//
// Those files.
//
// # Guarantees
//
// An intent is on the disk before the runtime is asked for an image, and goes only when a record of the pull is there or
// nothing can have come of it: an image that a killed agent has left is never taken for one that somebody else brought. Files
// are replaced whole. What can't be read lets nobody in: the image is pulled again, with the pod's own credentials.
// Records of images that are gone are removed. No lock is held over a call of the runtime.
//
// Source: KEP-2535 (ensure secret-pulled images), KubeletConfiguration fields imagePullCredentialsVerificationPolicy and
// preloadedImagesVerificationAllowlist, API types ImagePullIntent and ImagePulledRecord of kubelet.config.k8s.io.
package pulled
