package kit

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Patience is how long a test waits for what should come soon. It is generous: the machine does other things too. A
// suite on a slower one sets it before its tests begin.
var Patience = 5 * time.Minute

// Namespace is a test's own namespace.
type Namespace struct {
	Name string
	bed  *Bed
	t    testing.TB
}

// Namespace makes a namespace for the test, with its service account, and removes it in the end.
func (b *Bed) Namespace(t testing.TB) *Namespace {
	t.Helper()
	ctx := t.Context()
	made, err := b.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := &Namespace{Name: made.Name, bed: b, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			n.diagnose()
		}
		n.remove()
	})
	Follow(t, "service account", func(ctx context.Context) (Watcher, error) {
		return b.Client.CoreV1().ServiceAccounts(n.Name).Watch(ctx, byName("default"))
	}, func(*corev1.ServiceAccount) bool { return true })
	return n
}

// In is the namespace for a subtest, which its failures end.
func (n *Namespace) In(t testing.TB) *Namespace { return &Namespace{Name: n.Name, bed: n.bed, t: t} }

// Bed is the bed that the namespace is on.
func (n *Namespace) Bed() *Bed { return n.bed }

func byName(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
}

// remove doesn't wait: the namespace controller goes on during the next test.
func (n *Namespace) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	_ = n.bed.Client.CoreV1().Namespaces().Delete(ctx, n.Name, metav1.DeleteOptions{})
	second := int64(1)
	_ = n.bed.Client.CoreV1().Pods(n.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &second},
		metav1.ListOptions{})
}

// Apply creates the objects of the YAML documents in the namespace.
func (n *Namespace) Apply(documents string) {
	n.t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			n.t.Fatalf("bad manifest: %v\n%s", err, documents)
		}
		if len(object.Object) == 0 {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		client := n.bed.dynamic.Resource(resource).Namespace(n.Name)
		if err := persist(apierrors.IsAlreadyExists, func() error {
			_, err := client.Create(n.t.Context(), object,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			return err
		}); err != nil {
			n.t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// Delete deletes the pod with the grace period in seconds; a negative one leaves it to the pod.
func (n *Namespace) Delete(pod string, grace int64) {
	n.t.Helper()
	options := metav1.DeleteOptions{}
	if grace >= 0 {
		options.GracePeriodSeconds = &grace
	}
	if err := persist(apierrors.IsNotFound, func() error {
		return n.bed.Client.CoreV1().Pods(n.Name).Delete(n.t.Context(), pod, options)
	}); err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}
}

// persist makes a request again while the API server is too busy for it. A try that has failed like that may have done
// its work nevertheless: done finds that in the error of the next one.
func persist(done func(error) bool, request func() error) error {
	err := request()
	for deadline := time.Now().Add(Patience); tooBusy(err) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		if err = request(); done(err) {
			return nil
		}
	}
	return err
}

func tooBusy(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsInternalError(err)
}
