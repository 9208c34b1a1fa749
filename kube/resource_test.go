package kube

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

var (
	called = metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "u", ResourceVersion: "7"}
	// onServer are what recordingServer has, by resource; listed are its lists.
	onServer = map[string]runtime.Object{
		"pods":                   &corev1.Pod{ObjectMeta: called},
		"events":                 &corev1.Event{ObjectMeta: called},
		"nodes":                  &corev1.Node{ObjectMeta: called},
		"secrets":                &corev1.Secret{ObjectMeta: called},
		"persistentvolumeclaims": &corev1.PersistentVolumeClaim{ObjectMeta: called},
		"persistentvolumes":      &corev1.PersistentVolume{ObjectMeta: called},
		"token": &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: "secret",
		}},
		"resourceclaims":             &resourcev1.ResourceClaim{ObjectMeta: called},
		"resourceslices":             &resourcev1.ResourceSlice{ObjectMeta: called},
		"leases":                     &coordinationv1.Lease{ObjectMeta: called},
		"certificatesigningrequests": &certificatesv1.CertificateSigningRequest{ObjectMeta: called},
	}
	listed = map[string]runtime.Object{
		"pods":           &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: called}}},
		"nodes":          &corev1.NodeList{Items: []corev1.Node{{ObjectMeta: called}}},
		"services":       &corev1.ServiceList{Items: []corev1.Service{{ObjectMeta: called}}},
		"configmaps":     &corev1.ConfigMapList{Items: []corev1.ConfigMap{{ObjectMeta: called}}},
		"secrets":        &corev1.SecretList{Items: []corev1.Secret{{ObjectMeta: called}}},
		"csidrivers":     &storagev1.CSIDriverList{Items: []storagev1.CSIDriver{{ObjectMeta: called}}},
		"runtimeclasses": &nodev1.RuntimeClassList{Items: []nodev1.RuntimeClass{{ObjectMeta: called}}},
	}
)

// recordingServer answers in client-go's encoding and notes the requests.
type recordingServer struct {
	mu       sync.Mutex
	requests []string
}

func (s *recordingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	accept, content := r.Header.Get("Accept"), r.Header.Get("Content-Type")
	s.requests = append(s.requests, fmt.Sprintf("%s %s accept %s content %s: %q", r.Method, r.URL, accept, content, body))
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	answer, code := listed[parts[len(parts)-1]], http.StatusOK
	for _, part := range parts {
		if o := onServer[part]; o != nil && (answer == nil || r.Method == http.MethodPost) {
			answer = o
		}
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/missing"):
		failure := apierrors.NewNotFound(corev1.Resource("pods"), "missing").Status()
		answer, code = &failure, http.StatusNotFound
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		return
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(answer)
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	var encoded bytes.Buffer
	if err == nil && ok {
		err = scheme.Codecs.EncoderForVersion(info.Serializer, kinds[0].GroupVersion()).Encode(answer, &encoded)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(code)
	_, _ = w.Write(encoded.Bytes())
}

// last is the latest request.
func (s *recordingServer) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return "none"
	}
	return s.requests[len(s.requests)-1]
}

// twin is one call by this package and the same by client-go.
type twin struct {
	name         string
	ours, theirs func() (any, error)
}

// The API server can't tell this client's requests from those of client-go's typed clients, and what it answers means
// the same.
func TestRequestsAreThoseOfClientGo(t *testing.T) {
	recorder := &recordingServer{}
	server := httptest.NewServer(recorder)
	defer server.Close()
	ours := clientOf(t, server.URL)
	cfg := &rest.Config{Host: server.URL}
	cfg.ContentType, cfg.AcceptContentTypes = ours.config.ContentType, ours.config.AcceptContentTypes
	theirs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, kind := range [][]twin{objectCalls(t, ours, theirs), claimCalls(t, ours, theirs), selections(t, ours, theirs)} {
		calls += len(kind)
		for _, c := range kind {
			want, wantErr := c.theirs()
			wantRequest := recorder.last()
			got, gotErr := c.ours()
			if request := recorder.last(); request != wantRequest {
				t.Errorf("%s asks\n%s\nwant\n%s", c.name, request, wantRequest)
			}
			if !equality.Semantic.DeepEqual(got, want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) ||
				apierrors.IsNotFound(gotErr) != apierrors.IsNotFound(wantErr) {
				t.Errorf("%s: got %v, %v\nwant %v, %v", c.name, got, gotErr, want, wantErr)
			}
		}
	}
	if n := len(recorder.requests); n != 2*calls {
		t.Errorf("%d requests were made", n)
	}
}

// objectCalls are those for one object.
func objectCalls(t *testing.T, ours *Client, theirs *kubernetes.Clientset) []twin {
	t.Helper()
	signing, err := ours.SigningRequests()
	if err != nil {
		t.Fatal(err)
	}
	ctx, core, patch, strategic := t.Context(), theirs.CoreV1(), []byte(`{"a":1}`), types.StrategicMergePatchType
	zero, uid := int64(0), types.UID("u")
	del := metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid}}
	pod, node, event := &corev1.Pod{ObjectMeta: called}, &corev1.Node{ObjectMeta: called},
		&corev1.Event{ObjectMeta: called}
	lease, csr := &coordinationv1.Lease{ObjectMeta: called}, &certificatesv1.CertificateSigningRequest{ObjectMeta: called}
	lease.Namespace = NamespaceNodeLease
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"a"}}}
	leases := theirs.CoordinationV1().Leases(NamespaceNodeLease)
	csrs := theirs.CertificatesV1().CertificateSigningRequests()
	get, create := metav1.GetOptions{}, metav1.CreateOptions{}
	return []twin{
		{
			"get pod",
			func() (any, error) { return ours.GetPod(ctx, "ns", "x") },
			func() (any, error) { return core.Pods("ns").Get(ctx, "x", get) },
		},
		{
			"get missing pod",
			func() (any, error) { return ours.GetPod(ctx, "ns", "missing") },
			func() (any, error) { return core.Pods("ns").Get(ctx, "missing", get) },
		},
		{
			"create pod",
			func() (any, error) { return ours.CreatePod(ctx, pod) },
			func() (any, error) { return core.Pods("ns").Create(ctx, pod, create) },
		},
		{"patch pod", func() (any, error) { return ours.PatchPodStatus(ctx, "ns", "x", patch) }, func() (any, error) {
			return core.Pods("ns").Patch(ctx, "x", strategic, patch, metav1.PatchOptions{}, "status")
		}},
		{
			"delete pod",
			func() (any, error) { return nil, ours.DeletePod(ctx, "ns", "x", uid) },
			func() (any, error) { return nil, core.Pods("ns").Delete(ctx, "x", del) },
		},
		{
			"create token",
			func() (any, error) { return ours.CreateToken(ctx, "ns", "sa", token) },
			func() (any, error) { return core.ServiceAccounts("ns").CreateToken(ctx, "sa", token, create) },
		},
		{
			"get claim",
			func() (any, error) { return ours.GetPersistentVolumeClaim(ctx, "ns", "x") },
			func() (any, error) { return core.PersistentVolumeClaims("ns").Get(ctx, "x", get) },
		},
		{
			"get volume",
			func() (any, error) { return ours.GetPersistentVolume(ctx, "x") },
			func() (any, error) { return core.PersistentVolumes().Get(ctx, "x", get) },
		},
		{
			"get secret",
			func() (any, error) { return ours.GetSecret(ctx, "ns", "x") },
			func() (any, error) { return core.Secrets("ns").Get(ctx, "x", get) },
		},
		{
			"get node",
			func() (any, error) { return ours.GetNode(ctx, "x") },
			func() (any, error) { return core.Nodes().Get(ctx, "x", get) },
		},
		{
			"create node",
			func() (any, error) { return ours.CreateNode(ctx, node) },
			func() (any, error) { return core.Nodes().Create(ctx, node, create) },
		},
		{
			"patch node status",
			func() (any, error) { return ours.PatchNodeStatus(ctx, "x", patch) },
			func() (any, error) {
				return core.Nodes().Patch(ctx, "x", strategic, patch, metav1.PatchOptions{}, "status")
			},
		},
		{
			"get lease",
			func() (any, error) { return ours.GetLease(ctx, "x") },
			func() (any, error) { return leases.Get(ctx, "x", get) },
		},
		{
			"create lease",
			func() (any, error) { return ours.CreateLease(ctx, lease) },
			func() (any, error) { return leases.Create(ctx, lease, create) },
		},
		{
			"update lease",
			func() (any, error) { return ours.UpdateLease(ctx, lease) },
			func() (any, error) { return leases.Update(ctx, lease, metav1.UpdateOptions{}) },
		},
		{
			"create event",
			func() (any, error) { return ours.CreateEvent(ctx, event) },
			func() (any, error) { return core.Events("ns").Create(ctx, event, create) },
		},
		{"patch event", func() (any, error) { return ours.PatchEvent(ctx, event, patch) }, func() (any, error) {
			return core.Events("ns").Patch(ctx, "x", strategic, patch, metav1.PatchOptions{})
		}},
		{
			"create csr",
			func() (any, error) { return signing.Create(ctx, csr, create) },
			func() (any, error) { return csrs.Create(ctx, csr, create) },
		},
		{
			"get csr",
			func() (any, error) { return signing.Get(ctx, "x", get) },
			func() (any, error) { return csrs.Get(ctx, "x", get) },
		},
	}
}

// claimCalls are those about devices that pods claim.
func claimCalls(t *testing.T, ours *Client, theirs *kubernetes.Clientset) []twin {
	t.Helper()
	claims, err := ClaimsOf(ours)
	if err != nil {
		t.Fatal(err)
	}
	ctx, selector := t.Context(), "spec.nodeName=n,spec.driver=d"
	return []twin{
		{
			"get resource claim",
			func() (any, error) { return claims.GetResourceClaim(ctx, "ns", "x") },
			func() (any, error) {
				return theirs.ResourceV1().ResourceClaims("ns").Get(ctx, "x", metav1.GetOptions{})
			},
		},
		{
			"delete resource slices",
			func() (any, error) { return nil, claims.DeleteResourceSlices(ctx, selector) },
			func() (any, error) {
				return nil, theirs.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
					metav1.ListOptions{FieldSelector: selector})
			},
		},
	}
}

// selections are lists and watches.
func selections(t *testing.T, ours *Client, theirs *kubernetes.Clientset) []twin {
	t.Helper()
	ctx, core, seconds := t.Context(), theirs.CoreV1(), int64(300)
	o := metav1.ListOptions{
		ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Limit: 7, Continue: "c",
		AllowWatchBookmarks: true, TimeoutSeconds: &seconds, FieldSelector: "metadata.name=x",
	}
	var calls []twin
	add := func(name string, src source, list func() (runtime.Object, error), watch func() error) {
		calls = append(calls,
			twin{"list " + name, func() (any, error) { return src.list(ctx, o) }, func() (any, error) { return list() }},
			twin{"watch " + name, func() (any, error) {
				w, err := src.watch(ctx, o)
				if err == nil {
					w.Stop()
				}
				return nil, err
			}, func() (any, error) { return nil, watch() }})
	}
	end := func(w interface{ Stop() }, err error) error {
		if err == nil {
			w.Stop()
		}
		return err
	}
	add("nodes", ours.nodes().source(func() runtime.Object { return new(corev1.NodeList) }, named("x")),
		func() (runtime.Object, error) {
			return core.Nodes().List(ctx, o)
		}, func() error { return end(core.Nodes().Watch(ctx, o)) })
	add("pods", ours.pods("").source(func() runtime.Object { return new(corev1.PodList) }, named("x")),
		func() (runtime.Object, error) {
			return core.Pods("").List(ctx, o)
		}, func() error { return end(core.Pods("").Watch(ctx, o)) })
	add("configmaps", ours.configMaps("ns").source(func() runtime.Object { return new(corev1.ConfigMapList) }, named("x")),
		func() (runtime.Object, error) {
			return core.ConfigMaps("ns").List(ctx, o)
		}, func() error { return end(core.ConfigMaps("ns").Watch(ctx, o)) })
	add("secrets", ours.secrets("ns").source(func() runtime.Object { return new(corev1.SecretList) }, named("x")),
		func() (runtime.Object, error) {
			return core.Secrets("ns").List(ctx, o)
		}, func() error { return end(core.Secrets("ns").Watch(ctx, o)) })
	classes := Resource[nodev1.RuntimeClass, *nodev1.RuntimeClass]{client: ours.node, name: "runtimeclasses"}
	add("runtimeclasses", classes.source(func() runtime.Object { return new(nodev1.RuntimeClassList) }, named("x")),
		func() (runtime.Object, error) { return theirs.NodeV1().RuntimeClasses().List(ctx, o) },
		func() error { return end(theirs.NodeV1().RuntimeClasses().Watch(ctx, o)) })
	drivers := Resource[storagev1.CSIDriver, *storagev1.CSIDriver]{client: ours.storage, name: "csidrivers"}
	add("csidrivers", drivers.source(func() runtime.Object { return new(storagev1.CSIDriverList) }, named("x")),
		func() (runtime.Object, error) { return theirs.StorageV1().CSIDrivers().List(ctx, o) },
		func() error { return end(theirs.StorageV1().CSIDrivers().Watch(ctx, o)) })
	return calls
}
