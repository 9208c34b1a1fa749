// Package pullrecords records with whose credentials the images on the node were pulled, and so which pods may use
// them.
//
// # Reads and writes
//
// The records below image_manager in the node's root directory, which are the kubelet's, in its format: a node that
// changes its agent keeps what is known. pulling/ has an ImagePullIntent for each pull that is under way or whose end
// nobody saw; pulled/ has an ImagePulledRecord for each image that was pulled.
//
// # Owns
//
// Those files.
//
// # Guarantees
//
// An intent is on the disk before the runtime is asked for an image. It is removed only when there is a record of the
// pull, or when the pull can't have brought the image. So an image that a killed agent has left is never taken for one
// that somebody else brought. Files are replaced as a whole. A record that can't be read permits nothing: the image is
// pulled again, with the pod's own credentials. Records of images that are gone are removed. No lock is held over a
// call of the runtime.
//
// Source: KEP-2535 (ensure secret-pulled images), KubeletConfiguration fields imagePullCredentialsVerificationPolicy
// and preloadedImagesVerificationAllowlist, API types ImagePullIntent and ImagePulledRecord of kubelet.config.k8s.io.
package pullrecords
