package kube

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NamespaceNodeLease is where the leases of nodes are.
const NamespaceNodeLease = corev1.NamespaceNodeLease

func (c *Client) pods(namespace string) Resource[corev1.Pod, *corev1.Pod] {
	return Resource[corev1.Pod, *corev1.Pod]{c.core, "pods", namespace}
}

func (c *Client) persistentVolumeClaims(namespace string) claims {
	return claims{c.core, "persistentvolumeclaims", namespace}
}

func (c *Client) persistentVolumes() Resource[corev1.PersistentVolume, *corev1.PersistentVolume] {
	return Resource[corev1.PersistentVolume, *corev1.PersistentVolume]{client: c.core, name: "persistentvolumes"}
}

func (c *Client) nodes() Resource[corev1.Node, *corev1.Node] {
	return Resource[corev1.Node, *corev1.Node]{client: c.core, name: "nodes"}
}

func (c *Client) leases() Resource[coordinationv1.Lease, *coordinationv1.Lease] {
	return Resource[coordinationv1.Lease, *coordinationv1.Lease]{c.coordination, "leases", NamespaceNodeLease}
}

func (c *Client) events(namespace string) Resource[corev1.Event, *corev1.Event] {
	return Resource[corev1.Event, *corev1.Event]{c.core, "events", namespace}
}

// SigningRequests are requests for certificates.
type SigningRequests = Resource[certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequest]

// claims are the claims of one namespace.
type claims = Resource[corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaim]

// SigningRequests are the requests for certificates at the API server.
func (c *Client) SigningRequests() (SigningRequests, error) {
	client, err := c.rest(certificatesGroup)
	return SigningRequests{client: client, name: "certificatesigningrequests"}, err
}

// GetPod reads a pod from the API server.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// CreatePod creates a pod: a mirror pod, because nodes may create no other.
func (c *Client) CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// PatchPodStatus applies a strategic merge patch to pods/status. A patch that carries metadata.uid
// fails with a conflict where the pod of that name is another one by now.
func (c *Client) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.pods(namespace).Patch(ctx, name, patch, metav1.PatchOptions{}, "status")
}

// DeletePod removes the API object of the pod with that UID at once (grace period zero). A conflict says that the pod
// of that name has another UID, or that somebody wrote it at the same time, or is a webhook's answer. That there is
// none may not be true: admission (NodeRestriction) looks in a cache, which is empty when the API server starts.
func (c *Client) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now := int64(0)
	return c.pods(namespace).Delete(ctx, name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      &metav1.Preconditions{UID: &uid},
	})
}

// CreateToken asks for a token of a service account.
func (c *Client) CreateToken(ctx context.Context, namespace, serviceAccount string,
	req *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	type tokens = Resource[authenticationv1.TokenRequest, *authenticationv1.TokenRequest]
	return tokens{c.core, "serviceaccounts", namespace}.createBelow(ctx, serviceAccount, "token", req,
		metav1.CreateOptions{})
}

// GetPersistentVolumeClaim reads a claim. A node may read those of its pods, and may not watch them.
func (c *Client) GetPersistentVolumeClaim(ctx context.Context, namespace,
	name string,
) (*corev1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.persistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// PatchPersistentVolumeClaimStatus changes the status of a claim by a strategic merge patch. A node may do that with
// those of its pods.
func (c *Client) PatchPersistentVolumeClaimStatus(ctx context.Context, namespace, name string, patch []byte,
) (*corev1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.persistentVolumeClaims(namespace).Patch(ctx, name, patch, metav1.PatchOptions{}, "status")
}

// GetPersistentVolume reads a persistent volume. A node may read those that claims of its pods are bound to.
func (c *Client) GetPersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.persistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// GetSecret reads a secret. A node may read those that its pods, and the volumes behind their claims, name.
func (c *Client) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// GetNode reads a Node.
func (c *Client) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.nodes().Get(ctx, name, metav1.GetOptions{})
}

// CreateNode registers a Node.
func (c *Client) CreateNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.nodes().Create(ctx, node, metav1.CreateOptions{})
}

// PatchNodeStatus applies a strategic merge patch to nodes/status.
func (c *Client) PatchNodeStatus(ctx context.Context, name string, patch []byte) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.nodes().Patch(ctx, name, patch, metav1.PatchOptions{}, "status")
}

// GetLease reads a node's lease.
func (c *Client) GetLease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.leases().Get(ctx, name, metav1.GetOptions{})
}

// CreateLease creates a node's lease.
func (c *Client) CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.leases().Create(ctx, lease, metav1.CreateOptions{})
}

// UpdateLease writes a node's lease; it fails with a conflict where somebody else wrote it since it was read.
func (c *Client) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.leases().Update(ctx, lease, metav1.UpdateOptions{})
}

// CreateEvent records a Kubernetes Event.
func (c *Client) CreateEvent(ctx context.Context, event *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
}

// PatchEvent applies a strategic merge patch to a recorded Event, such as a new count.
func (c *Client) PatchEvent(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.events(event.Namespace).Patch(ctx, event.Name, patch, metav1.PatchOptions{})
}
