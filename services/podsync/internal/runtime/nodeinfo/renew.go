package nodeinfo

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/kube"
)

// renewedFor is how long the API server isn't asked again for the same pod.
const renewedFor = time.Minute

// renewal is when the API server was last asked for the Node, by the UID of the pod for which it was.
type renewal struct {
	ask   func(ctx context.Context, name string) (*corev1.Node, error)
	asked map[string]time.Time
}

// AskBy gives Renew the way to read a Node at the API server. It comes before the first Renew.
func (f *Info) AskBy(ask func(ctx context.Context, name string) (*corev1.Node, error)) {
	f.renewal.ask = ask
}

// Renew has the API server asked for the Node, once for a pod that the known one keeps away: lease may be down, or
// read from an API server that is behind the one that told of the pod. It reports whether the pod is to wait. Then
// changed is called once the answer has been taken. Renew and the answer of slow belong to the goroutine of SetNode.
func (f *Info) Renew(ctx context.Context, uid string, slow func(string, func() func()) bool, changed func()) bool {
	r := &f.renewal
	now := time.Now()
	maps.DeleteFunc(r.asked, func(_ string, at time.Time) bool { return now.Sub(at) > renewedFor })
	if _, lately := r.asked[uid]; lately || r.ask == nil || f.Node().UID == "" {
		return false
	}
	slow("read the Node for pod "+uid, func() (answer func()) {
		n, err := r.ask(ctx, f.cfg.NodeName)
		return func() {
			// lease may have told of a later state meanwhile, and says nothing more until the Node changes again.
			if known := f.Node(); err == nil && (n.UID != known.UID || !kube.Older(n, known)) {
				f.SetNode(n)
			}
			r.asked[uid] = time.Now()
			changed()
		}
	})
	return true
}
