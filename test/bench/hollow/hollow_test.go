package hollow

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// gonePod is one that is being deleted: there is nothing to start.
func gonePod(uid string, version int) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"uid":%q,"resourceVersion":"%d",`+
		`"deletionTimestamp":"2026-11-28T12:00:00Z"}}`, uid, uid, version)
}

func event(uid string, version int) string {
	return fmt.Sprintf(`{"type":"ADDED","object":%s}`, gonePod(uid, version))
}

// An API server ends watches when it likes, and in the end forgets where they were. The agent goes on all the same.
func TestTheAgentOutlivesItsWatch(t *testing.T) {
	const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410}}`
	var lists, watches atomic.Int32
	third := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}`)
		case r.FormValue("fieldSelector") != "spec.nodeName=n1":
			t.Errorf("asked for %s", r.URL)
		case r.FormValue("watch") == "":
			n := int(lists.Add(1))
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, 10*n,
				gonePod(fmt.Sprint("list", n), 10*n-1))
		default:
			switch watches.Add(1) {
			case 1:
				fmt.Fprint(w, event("watch1", 11))
			case 2:
				if from := r.FormValue("resourceVersion"); from != "11" {
					t.Errorf("the second watch begins at %q", from)
				}
				fmt.Fprint(w, event("watch2", 12), expired)
			case 3:
				close(third)
				<-r.Context().Done()
			}
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := Agent{Client: client, Node: "n1", Parallel: 1}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	select {
	case <-third:
	case err := <-ended:
		t.Fatalf("the agent has ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("there is no third watch")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, uid := range []types.UID{"list1", "watch1", "watch2", "list2"} {
		if a.pods[uid] == nil {
			t.Errorf("the agent knows nothing of %s", uid)
		}
	}
}
