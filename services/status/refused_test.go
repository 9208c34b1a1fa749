package status

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A policy may refuse a status as long as it is there. The pod is read before each write, which succeeds.
func TestAStatusThatAPolicyRefusesIsPutOff(t *testing.T) {
	policy := errors.New("ValidatingAdmissionPolicy 'no-status' denied request")
	for name, refusal := range map[string]error{
		"forbidden": apierrors.NewForbidden(corev1.Resource("pods"), "web", policy),
		"invalid":   apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web", nil),
	} {
		t.Run(name, func(t *testing.T) {
			p := apiPod()
			server := newServer(p.Pod)
			server.refuse = refusal
			run(t, server, func(r *rig) {
				defer r.start()()
				r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := len(server.calls()); n < 10 || n > 40 {
					t.Errorf("%d requests in the first minute", n)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := len(server.calls()); n > 2*int(time.Hour/retryMax)+2 {
					t.Errorf("%d requests in an hour", n)
				}
				if n := strings.Count(r.log.String(), "level=WARN"); n == 0 || n > 6 {
					t.Errorf("%d warnings", n)
				}
				server.set(func() { server.refuse = nil })
				time.Sleep(retryMax)
				synctest.Wait()
				if got := server.pod("default/web").Status.Phase; got != corev1.PodRunning {
					t.Errorf("phase %q once the policy is gone", got)
				}
			})
		})
	}
}
