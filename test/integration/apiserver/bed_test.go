package apiserver

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"kubelot.dev/kube"
)

// bedDir is the test bed of all tests: that of the environment variable KUBELOT_TESTBED, or an own one.
var bedDir string

func TestMain(m *testing.M) {
	stop, err := startBed()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the control plane (make build and tools/testbed.sh build its programs):", err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// startBed runs the control plane until stop is called.
func startBed() (stop func(), err error) {
	if bedDir = os.Getenv("KUBELOT_TESTBED"); bedDir != "" {
		return func() {}, nil
	}
	parent, err := os.MkdirTemp("", "kubelot-apiserver-")
	if err != nil {
		return nil, err
	}
	bedDir = filepath.Join(parent, "bed")
	program, err := filepath.Abs("../../../.bin/testbed")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "cluster", "--dir", bedDir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = os.RemoveAll(parent)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "Ready") {
			go func() {
				for lines.Scan() {
					continue
				}
			}()
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("%s ended before the control plane was ready", program)
}

func admin(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(bedDir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return kubernetes.NewForConfigOrDie(cfg)
}

func nodeKubeconfig() string { return filepath.Join(bedDir, "node.kubeconfig") }

// nodeName is the node that the API server takes node.kubeconfig's user for.
func nodeName(t *testing.T) string {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", nodeKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	self, err := kubernetes.NewForConfigOrDie(cfg).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(self.Status.UserInfo.Username, "system:node:")
}

func nodeClient(t *testing.T) *kube.Client {
	t.Helper()
	c, err := kube.NewClient(nodeKubeconfig(), kube.Options{Daemon: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// namespace makes a namespace with its service account, and removes it in the end.
func namespace(t *testing.T, api *kubernetes.Clientset) string {
	t.Helper()
	ctx := t.Context()
	ns, err := api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now := int64(0)
		ctx := context.Background()
		_ = api.CoreV1().Pods(ns.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{})
		_ = api.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{})
	})
	eventually(t, "the service account", func() bool {
		_, err := api.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	return ns.Name
}

// boundPod makes a pod that is bound to the node already.
func boundPod(t *testing.T, api *kubernetes.Clientset, ns, name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PodSpec{
			NodeName:   nodeName(t),
			Containers: []corev1.Container{{Name: "app", Image: "example.com/app:1"}},
		},
	}
	for _, e := range edit {
		e(p)
	}
	made, err := api.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// patience is how long a test waits for what should come at once: the machine does other things too.
const patience = 3 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("timed out waiting for %s", what)
}
