package parity

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// otherwise are the answers that are meant to differ, each with its reason. An entry that nothing differs by any more
// fails the test.
var otherwise = []struct{ request, reason string }{
	{`HEALTH GET /healthz(/syncloop|\?verbose=1)`, "the checks of the node's API are those of /healthz everywhere; the " +
		"kubelet has but ping here"},
	{`(admin|HEALTH) POST /(healthz|configz|metrics)`, "what only shows something is had by GET"},
	{`admin HEAD /(pods|stats/summary|containerLogs/.*)`, "where there is GET there is HEAD"},
	{`admin GET /(stats|stats/summary/|containerLogs/NAMESPACE/user/told/)`, "a slash at the end makes another path"},
	{
		`admin GET /(exec|attach)/NAMESPACE/user/no-such-uid/.*|admin POST /run/NAMESPACE/user/no-such-uid/.*`,
		"another UID is another pod; the kubelet mostly doesn't look at it",
	},
	{`(admin|get:.*) GET /configz`, "pulls are parallel by default, and defaults that follow from others are shown"},
	{
		`admin GET /containerLogs/.*sinceSeconds=9223372036854775807`,
		"so many seconds overflow in the kubelet, which shows nothing",
	},
	{`admin GET /containerLogs/.*stream=Std.*`, "streams apart are no feature to be switched on"},
	{`admin GET /debug/pprof/|get:nodes/proxy GET /debug/pprof/`, "the kubelet's router misses the index"},
	{`admin GET /metrics/resource Accept=application/vnd.*`, "kubelot-stats writes text"},
	{
		`admin POST /run/NAMESPACE/user/(PODUID/)?app(\?cmd=(true|no-such-command))?`,
		"an error names the call; an empty output has a type like any",
	},
	{`admin PUT /debug/flags/v`, "it says what is wanted"},
	{
		`nobody GET /nothing|(none|get:.*|create:.*) GET /(|nothing|logs|runningpods)`,
		"nothing, not even which paths there are, is told before authorization",
	},
	{
		`(none|get:.*|create:.*) GET /(exec|attach|portForward)/.*`,
		"what runs something needs create, even over GET (kubernetes issue 119640)",
	},
}

// TestSameAnswers compares what either agent answers to the same requests: status, headers and body.
func TestSameAnswers(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	want, got := answersOf(t, bed, node.Kubelet), answersOf(t, bed, node.Kubelot)
	dump(t, "kubelet-answers", want)
	dump(t, "kubelot-answers", got)
	used := make([]bool, len(otherwise))
	same := 0
	for _, request := range slices.Sorted(maps.Keys(want)) {
		if want[request] == got[request] {
			same++
			continue
		}
		intended := false
		for i, o := range otherwise {
			if regexp.MustCompile("^(" + o.request + ")$").MatchString(request) {
				used[i], intended = true, true
			}
		}
		if !intended {
			t.Errorf("%s: - kubelet, + kubelot\n%s", request, strings.Join(diff(want[request], got[request]), "\n"))
		}
	}
	for i, o := range otherwise {
		if !used[i] {
			t.Errorf("nothing differs (any more) by %s: %s", o.request, o.reason)
		}
	}
	t.Logf("%d requests, %d with the same answer", len(want), same)
}

// asker sends requests to the agent under one name.
type asker struct {
	client *http.Client
	token  string
	health bool // asks the port of /healthz
}

// answersOf asks the agent, with pods in every state.
func answersOf(t *testing.T, bed *kit.Bed, agent node.Agent) map[string]string {
	t.Helper()
	if err := bed.StartNode(t.Context(), agent); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	ns.Apply(strings.Replace(user, "  volumes:\n", told+"  volumes:\n", 1) + "---\n" + passing + lines)
	p := ns.Running("user")
	ns.Running("growing")
	ns.Phase("short", corev1.PodFailed)
	ns.Phase("large", corev1.PodFailed)
	ns.Wait("again", "restarted", restarted)
	ns.Waiting("blank", "app", "ErrImageNeverPull")
	ns.Logged(p, "told", "four\n")
	askers := askersOf(t, bed, ns)
	answers := map[string]string{}
	for _, request := range requestsOf() {
		who, rest, _ := strings.Cut(request, " ")
		answers[request] = askers[who].ask(t, bed, ns, string(p.UID), rest)
	}
	for _, name := range []string{"user", "blank", "large", "growing", "short", "again"} {
		ns.Delete(name, 0)
	}
	if err := bed.Node.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := bed.Client.CoreV1().Nodes().Delete(t.Context(), kit.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return answers
}

func requestsOf() []string {
	all := strings.Split(strings.TrimSpace(requests), "\n")
	for i, line := range all {
		if rest, ok := strings.CutPrefix(line, "WS "); ok {
			protocol, path, _ := strings.Cut(rest, " ")
			all[i] = "admin GET " + path + " Connection=Upgrade Upgrade=websocket Sec-WebSocket-Version=13 " +
				"Sec-WebSocket-Key=dGhlIHNhbXBsZSBub25jZQ== Sec-WebSocket-Protocol=" + protocol
		}
	}
	for _, right := range rights {
		for road := range strings.SplitSeq(strings.TrimSpace(roads), "\n") {
			all = append(all, right+" "+road)
		}
	}
	return all
}

// askersOf are the administrator with a client certificate, somebody without credentials, one with bad ones, and the
// service accounts.
func askersOf(t *testing.T, bed *kit.Bed, ns *kit.Namespace) map[string]asker {
	t.Helper()
	config, err := bed.ControlPlane.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
	if len(config.CertData) > 0 {
		certificate, err = tls.X509KeyPair(config.CertData, config.KeyData)
	}
	if err != nil {
		t.Fatal(err)
	}
	client := func(certificates ...tls.Certificate) *http.Client {
		transport := &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true, Certificates: certificates},
			DisableCompression: true,
		}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request,
			[]*http.Request,
		) error {
			return http.ErrUseLastResponse
		}}
	}
	anybody := client()
	askers := map[string]asker{
		"admin": {client: client(certificate)}, "HEALTH": {client: anybody, health: true}, "nobody": {client: anybody},
		"stranger": {client: anybody, token: "nonsense"},
	}
	for i, right := range rights {
		name := fmt.Sprintf("account%d", i)
		ns.Kubectl("create", "serviceaccount", name)
		if verb, resource, ok := strings.Cut(right, ":"); ok {
			role := ns.Name + "-" + name
			ns.Kubectl("create", "clusterrole", role, "--verb="+verb, "--resource="+resource)
			ns.Kubectl("create", "clusterrolebinding", role, "--clusterrole="+role, "--serviceaccount="+ns.Name+":"+name)
		}
		askers[right] = asker{client: anybody, token: strings.TrimSpace(ns.Kubectl("create", "token", name))}
	}
	return askers
}

// ask sends a request and tells the answer.
func (a asker) ask(t *testing.T, bed *kit.Bed, ns *kit.Namespace, uid, text string) string {
	t.Helper()
	fields := strings.Fields(strings.NewReplacer("NAMESPACE", ns.Name, "PODUID", uid).Replace(text))
	base := fmt.Sprintf("https://%s:%d", bed.Bed.Gateway, bed.Node.Port)
	if a.health {
		base = fmt.Sprintf("http://127.0.0.1:%d", bed.Node.HealthPort)
	}
	request, err := http.NewRequestWithContext(t.Context(), fields[0], base+fields[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range fields[2:] {
		name, value, _ := strings.Cut(header, "=")
		request.Header.Set(name, value)
	}
	if a.token != "" {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return "error: " + anonymous(err.Error(), ns.Name, bed.Bed.Dir)
	}
	defer func() {
		response.Body.Close()
		// The runtime ends a connection that it has refused to upgrade.
		a.client.CloseIdleConnections()
	}()
	body, err := []byte(nil), error(nil)
	if response.StatusCode != http.StatusSwitchingProtocols {
		body, err = io.ReadAll(io.LimitReader(response.Body, 4<<20))
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return anonymous(essence(ns.Name, fields[1], response, body), ns.Name, bed.Bed.Dir)
}

// telling are the headers that clients go by, besides the type of the content.
var telling = []string{
	"Connection", "Content-Encoding", "Location", "Sec-Websocket-Protocol", "Upgrade",
	"X-Accepted-Stream-Protocol-Versions", "X-Stream-Protocol-Version",
}

// measured are pages whose content differs from moment to moment, and is compared by other tests.
var measured = regexp.MustCompile(`^/(metrics|stats|debug/pprof|statusz|flagz|logs)`)

// essence is the part of an answer that is to be the same.
func essence(namespace, path string, response *http.Response, body []byte) string {
	var out strings.Builder
	fmt.Fprintln(&out, response.Proto, response.StatusCode)
	for _, name := range telling {
		if value := response.Header.Get(name); value != "" {
			fmt.Fprintln(&out, name+":", value)
		}
	}
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if response.StatusCode == http.StatusOK && response.Request.Method != http.MethodHead && kind != "" &&
		kind != "text/plain" {
		fmt.Fprintln(&out, "Content-Type:", kind)
	}
	switch {
	case response.StatusCode == http.StatusMethodNotAllowed,
		strings.Contains(strings.ToLower(string(body)), "page not found"):
	case response.StatusCode == http.StatusOK && measured.MatchString(path), response.Header.Get("Content-Encoding") != "":
	case kind == "application/json":
		out.WriteString(tidied(namespace, body))
	default:
		out.WriteString(strings.TrimSpace(string(body)))
	}
	return out.String()
}

// tidied is JSON without what differs from run to run; of pods only those of the namespace.
func tidied(namespace string, body []byte) string {
	var list corev1.PodList
	if err := json.Unmarshal(body, &list); err == nil && list.Kind == "PodList" {
		items := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Namespace != namespace })
		slices.SortFunc(items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		for i := range items {
			tidyPod(&items[i])
		}
		list.Items = items
		body, _ = json.Marshal(list)
	}
	out, err := yaml.JSONToYAML(body)
	if err != nil {
		return string(body)
	}
	return string(out)
}

// tidyPod takes away what other stories compare or no agent promises: who wrote which field, the order of conditions,
// what belongs to the resizing of pod-level resources, the address and conditions of a pod that was never admitted, and
// by which name the runtime knows an image.
func tidyPod(p *corev1.Pod) {
	p.ManagedFields, p.ResourceVersion = nil, ""
	p.Status.Resources, p.Status.AllocatedResources = nil, nil
	if p.Status.Reason != "" {
		p.Status.HostIP, p.Status.HostIPs, p.Status.Conditions = "", nil, nil
	}
	slices.SortFunc(p.Status.Conditions, func(a, b corev1.PodCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Image = ""
	}
}
