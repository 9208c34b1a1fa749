// Package image gets images onto the node.
//
// # Reads
//
// The runtime's image store (CRI ImageStatus), the pull secrets given with a request, the node's own registry
// credentials in the configured directories, and what credential providers answer.
//
// # Writes
//
// The runtime's image store (CRI PullImage), the records of pulls (package pullrecords); Events through the given
// function.
//
// # Owns
//
// The pulls that run, their limit, and the back-off of pod and image.
//
// # Guarantees
//
// An image that is present and may be used as it is costs one ImageStatus call and waits for no pull. An image that was
// pulled with another pod's secret is pulled again with the pod's own credentials (KEP-2535).
// Requests for one image with the same credentials share one pull; it is cancelled only when nobody waits for it
// any more. No lock is held over a call. Nothing is started by New, and no goroutine outlives the last Ensure.
//
// The registry credentials are read by hand: go-containerregistry's authn gives one login for an image and doesn't say
// which secret it came from (docs/adr/0024).
//
// Source: Kubernetes documentation "Images" (imagePullPolicy, imagePullSecrets, ImagePullBackOff), KubeletConfiguration
// fields serializeImagePulls, maxParallelImagePulls, registryPullQPS, registryBurst.
package image
