package kube

import (
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// group is a group and version of the API with the types of it that are used here. client-go's scheme has all groups,
// and each process that links it pays for them at its start (docs/adr/0015).
type group struct {
	version schema.GroupVersion
	path    string
	types   []runtime.Object
}

var (
	coreGroup = group{corev1.SchemeGroupVersion, "/api", []runtime.Object{
		&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Event{}, &corev1.EventList{}, &corev1.Node{},
		&corev1.NodeList{},
		&corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{},
		&corev1.SecretList{},
		&corev1.Service{}, &corev1.ServiceList{}, &corev1.ServiceAccount{},
	}}
	coordinationGroup = group{coordinationv1.SchemeGroupVersion, "/apis", []runtime.Object{&coordinationv1.Lease{}}}
	nodeGroup         = group{nodev1.SchemeGroupVersion, "/apis", []runtime.Object{
		&nodev1.RuntimeClass{},
		&nodev1.RuntimeClassList{},
	}}
	storageGroup = group{storagev1.SchemeGroupVersion, "/apis", []runtime.Object{
		&storagev1.CSIDriver{},
		&storagev1.CSIDriverList{},
		&storagev1.CSINode{},
		&storagev1.VolumeAttachment{},
	}}
	resourceGroup = group{resourcev1.SchemeGroupVersion, "/apis", []runtime.Object{
		&resourcev1.ResourceClaim{},
		&resourcev1.ResourceSlice{},
	}}
	certificatesGroup = group{
		certificatesv1.SchemeGroupVersion, "/apis",
		[]runtime.Object{&certificatesv1.CertificateSigningRequest{}},
	}
	// authenticationGroup has no path of its own here: tokens are asked for below a service account.
	authenticationGroup = group{
		authenticationv1.SchemeGroupVersion, "/apis",
		[]runtime.Object{&authenticationv1.TokenRequest{}},
	}
)

// serializers encode and decode the types of all groups; they are made by the first client.
var serializers = sync.OnceValue(func() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	for _, g := range []group{
		coreGroup, coordinationGroup, nodeGroup, storageGroup, resourceGroup, certificatesGroup, authenticationGroup,
	} {
		scheme.AddKnownTypes(g.version, g.types...)
		metav1.AddToGroupVersion(scheme, g.version)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme)).WithoutConversion()
})

// rest makes the client of a group; all groups share the connections and the limits of c.
func (c *Client) rest(g group) (rest.Interface, error) {
	cfg := rest.CopyConfig(c.config)
	cfg.GroupVersion, cfg.APIPath = &g.version, g.path
	cfg.NegotiatedSerializer = serializers()
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return rest.RESTClientForConfigAndClient(cfg, c.http)
}
