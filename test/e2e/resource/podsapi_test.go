package resource

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"kubelot.dev/test/e2e/kit"
)

// Programs on the node list, get and watch its pods by the Pods API, and ask for their devices, while podsync stands
// still. While it is killed and comes back, no call fails, and a watch goes on.
func TestPodsAPIWithoutPodsync(t *testing.T) {
	ns := bed.Namespace(t)
	const spec = "\n  containers: [{name: app, image: 'busybox:1.36', command: $FOREVER}]\n"
	ns.Apply(pod("seen", spec))
	p := ns.Running("seen")

	conn, err := grpc.NewClient("unix://"+filepath.Join(bed.Node.RootDir, "pods-api", "pods-api.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := podsv1alpha1.NewPodsClient(conn)
	watch := watchPods(t, client)
	watch.sees(podsv1alpha1.EventType_ADDED, p.UID)
	watch.sees(podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE, "")
	kit.Eventually(t, "the pod in the Pods API, running", func() error { return has(t, client, p) })

	bed.Signal(t, "podsync", syscall.SIGSTOP)
	defer bed.Signal(t, "podsync", syscall.SIGCONT)
	stopped, err := bed.Daemon("podsync")
	if err != nil {
		t.Fatal(err)
	}
	failed := has(t, client, p)
	ns.PodResources("seen")
	if now, err := bed.Daemon("podsync"); err != nil || now != stopped {
		t.Logf("podsync was started again meanwhile: %d, %v", now, err)
	}
	if failed != nil {
		t.Errorf("while podsync stands still: %v", failed)
	}
	ns.Apply(pod("comes", spec))
	asked, stop := context.WithCancel(t.Context())
	calls := make(chan int)
	go func() {
		n := 0
		// More calls would be refused: there is a limit.
		for ; asked.Err() == nil; time.Sleep(200 * time.Millisecond) {
			n++
			if err := has(t, client, p); err != nil {
				t.Errorf("while podsync dies and comes back: %v", err)
				break
			}
		}
		calls <- n
	}()
	bed.Signal(t, "podsync", syscall.SIGKILL)
	comes := ns.Running("comes")
	stop()
	t.Logf("%d calls meanwhile", <-calls)

	watch.sees(podsv1alpha1.EventType_ADDED, comes.UID)
	for _, p := range []*corev1.Pod{p, comes} {
		ns.Delete(p.Name, 1)
		ns.Gone(p)
		watch.sees(podsv1alpha1.EventType_DELETED, p.UID)
		if _, err := get(t, client, p.UID); status.Code(err) != codes.NotFound {
			t.Errorf("a pod that is gone: %v", err)
		}
	}
}

// callLimit is more than a call takes on a machine that stands still for a while.
const callLimit = time.Minute

func get(t *testing.T, client podsv1alpha1.PodsClient, uid types.UID) (*corev1.Pod, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	answer, err := client.GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: string(uid)})
	if err != nil {
		return nil, err
	}
	p := &corev1.Pod{}
	return p, p.Unmarshal(answer.GetPod())
}

// has is an error unless the API has the pod, running, and lists it.
func has(t *testing.T, client podsv1alpha1.PodsClient, want *corev1.Pod) error {
	t.Helper()
	p, err := get(t, client, want.UID)
	if err != nil {
		return err
	}
	if p.UID != want.UID || p.Name != want.Name || p.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("it is %s/%s, %s, %s", p.Namespace, p.Name, p.UID, p.Status.Phase)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	all, err := client.ListPods(ctx, &podsv1alpha1.ListPodsRequest{})
	if err != nil {
		return err
	}
	for _, data := range all.GetPods() {
		var p corev1.Pod
		if err := p.Unmarshal(data); err != nil {
			return err
		}
		if p.UID == want.UID {
			return nil
		}
	}
	return fmt.Errorf("it isn't among the %d pods of the list", len(all.GetPods()))
}

// podWatch is a watch of the API.
type podWatch struct {
	t      *testing.T
	events chan *podsv1alpha1.WatchPodsEvent
	ended  chan error
}

func watchPods(t *testing.T, client podsv1alpha1.PodsClient) *podWatch {
	t.Helper()
	stream, err := client.WatchPods(t.Context(), &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	w := &podWatch{t: t, events: make(chan *podsv1alpha1.WatchPodsEvent), ended: make(chan error, 1)}
	go func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				w.ended <- err
				return
			}
			select {
			case w.events <- e:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return w
}

// sees waits for an event of that type, about that pod.
func (w *podWatch) sees(kind podsv1alpha1.EventType, uid types.UID) {
	w.t.Helper()
	for late := time.After(kit.Patience); ; {
		select {
		case e := <-w.events:
			var p corev1.Pod
			if err := p.Unmarshal(e.GetPod()); err != nil {
				w.t.Fatal(err)
			}
			if e.GetType() == kind && p.UID == uid {
				return
			}
		case err := <-w.ended:
			w.t.Fatalf("the watch has ended before %s of %q: %v", kind, uid, err)
		case <-late:
			w.t.Fatalf("the watch has seen no %s of %q", kind, uid)
		}
	}
}
