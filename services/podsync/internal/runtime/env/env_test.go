package env

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// objects is Sources over maps.
type objects struct {
	configMaps  map[string]*corev1.ConfigMap
	secrets     map[string]*corev1.Secret
	services    []*corev1.Service
	servicesErr error
	waited      bool // for Services
	err         error
	reads       int
}

func (o *objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o.reads++
	if o.err != nil {
		return nil, o.err
	}
	if cm, ok := o.configMaps[namespace+"/"+name]; ok {
		return cm, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (o *objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	o.reads++
	if s, ok := o.secrets[namespace+"/"+name]; ok {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (o *objects) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	o.waited = ctx.Err() == nil
	var out []*corev1.Service
	for _, s := range o.services {
		if s.Namespace == namespace {
			out = append(out, s)
		}
	}
	return out, o.servicesErr
}

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func testPod() *corev1.Pod {
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", UID: "u-1",
			Labels:      map[string]string{"app": "web", "tier": `a"b`},
			Annotations: map[string]string{"Example.com/Key": "v"},
		},
		Spec: corev1.PodSpec{
			NodeName: "node1", ServiceAccountName: "sa", EnableServiceLinks: &no,
			Containers: []corev1.Container{{Name: "app"}, {Name: "side", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "hugepages-2Mi": resource.MustParse("4Mi")},
			}}},
		},
	}
}

func lines(vars []*runtimeapi.KeyValue) []string {
	out := []string{}
	for _, v := range vars {
		out = append(out, v.Key+"="+string(v.Value))
	}
	return out
}

func resolve(t *testing.T, src Sources, container corev1.Container, change ...func(*Input)) ([]string, error) {
	t.Helper()
	in := Input{
		Pod: testPod(), Container: &container, PodIPs: []string{"10.0.0.5", "fd00::5"},
		HostIPs: []string{"192.0.2.1"},
	}
	for _, f := range change {
		f(&in)
	}
	vars, err := Resolve(t.Context(), src, in)
	return lines(vars), err
}

func wantLines(t *testing.T, got []string, err error, want ...string) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func ref[T any](v T) *T { return &v }

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{
		Name:      name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}},
	}
}

func fromResource(name, container, what, divisor string) corev1.EnvVar {
	sel := &corev1.ResourceFieldSelector{ContainerName: container, Resource: what}
	if divisor != "" {
		sel.Divisor = resource.MustParse(divisor)
	}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: sel}}
}

func fromConfigMap(name, object, key string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key, Optional: &optional,
	}}}
}

func fromSecret(name, object, key string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key, Optional: &optional,
	}}}
}

func TestLiteralsExpandInOrder(t *testing.T) {
	got, err := resolve(t, nil, corev1.Container{Env: []corev1.EnvVar{
		{Name: "A", Value: "1"},
		{Name: "B", Value: "$(A)-$(C)-$$(A)"},
		{Name: "C", Value: "$(B)"},
		{Name: "A", Value: "2$(A)"},
		{Name: "EMPTY"},
	}})
	wantLines(t, got, err, "A=21", "B=1-$(C)-$(A)", "C=1-$(C)-$(A)", "EMPTY=")
}

func TestFields(t *testing.T) {
	got, err := resolve(t, nil, corev1.Container{Env: []corev1.EnvVar{
		fromField("ANNO", "metadata.annotations['Example.com/Key']"),
		fromField("HOST", "status.hostIP"), fromField("HOSTS", "status.hostIPs"),
		fromField("IP", "status.podIP"), fromField("IPS", "status.podIPs"),
		fromField("LABEL", "metadata.labels['app']"), fromField("LABELS", "metadata.labels"),
		fromField("NAME", "metadata.name"), fromField("NODE", "spec.nodeName"), fromField("NONE", "metadata.labels['none']"),
		fromField("NS", "metadata.namespace"), fromField("SA", "spec.serviceAccountName"), fromField("UID", "metadata.uid"),
	}}, func(in *Input) { in.HostIPs = []string{"fd00::1", "192.0.2.1"} })
	wantLines(t, got, err, "ANNO=v", "HOST=fd00::1", "HOSTS=fd00::1,192.0.2.1", "IP=fd00::5", "IPS=fd00::5,10.0.0.5",
		"LABEL=web", "LABELS=app=\"web\"\ntier=\"a\\\"b\"", "NAME=web", "NODE=node1", "NONE=", "NS=ns", "SA=sa", "UID=u-1")
}

func TestFieldErrors(t *testing.T) {
	for path, want := range map[string]string{
		"spec.nope":              "field label not supported: spec.nope",
		"spec.containers['a']":   "does not support subscript",
		"metadata.labels['a b']": "invalid key subscript",
	} {
		_, err := resolve(t, nil, corev1.Container{Env: []corev1.EnvVar{fromField("X", path)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	_, err := resolve(t, nil, corev1.Container{Env: []corev1.EnvVar{fromField("X", "status.hostIP")}},
		func(in *Input) { in.HostIPs = nil })
	if err == nil {
		t.Error("no error without node addresses")
	}
}

func TestResources(t *testing.T) {
	container := corev1.Container{
		Name: "app",
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("100Mi")},
		},
		Env: []corev1.EnvVar{
			fromResource("CPU", "", "requests.cpu", ""), fromResource("CPUM", "", "requests.cpu", "1m"),
			fromResource("DISK", "", "limits.ephemeral-storage", "1Gi"),
			fromResource("HUGE", "side", "limits.hugepages-2Mi", "1Mi"),
			fromResource("LIMCPU", "", "limits.cpu", ""),
			fromResource("MEM", "", "limits.memory", "1Mi"), fromResource("REQMEM", "", "requests.memory", ""),
			fromResource("SIDE", "side", "limits.cpu", ""),
		},
	}
	got, err := resolve(t, nil, container, func(in *Input) {
		in.Allocatable = corev1.ResourceList{
			"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
			"ephemeral-storage": resource.MustParse("10Gi"),
		}
		in.Pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("3")}}
	})
	wantLines(t, got, err, "CPU=1", "CPUM=250", "DISK=10", "HUGE=4", "LIMCPU=3", "MEM=100", "REQMEM=67108864", "SIDE=2")

	for what, in := range map[string]corev1.EnvVar{
		"unsupported container resource : limits.gpu": fromResource("X", "", "limits.gpu", ""),
		"container none not found":                    fromResource("X", "none", "limits.cpu", ""),
		"not known yet":                               fromResource("X", "", "limits.cpu", ""),
	} {
		_, err := resolve(t, nil, corev1.Container{Name: "app", Env: []corev1.EnvVar{in}})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %q", err, what)
		}
	}
}

func testObjects() *objects {
	return &objects{
		configMaps: map[string]*corev1.ConfigMap{
			"ns/cm": {Data: map[string]string{"k": "from-cm", "dotted.key": "d"}},
		},
		secrets: map[string]*corev1.Secret{"ns/s": {Data: map[string][]byte{"k": []byte("from-secret"), "p": []byte("pw")}}},
	}
}

func TestEnvFromAndKeys(t *testing.T) {
	src := testObjects()
	got, err := resolve(t, src, corev1.Container{
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
			{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
			{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "none"},
				Optional:             ref(true),
			}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
		},
		Env: []corev1.EnvVar{
			{Name: "REF", Value: "$(k)/$(S_p)/$(dotted.key)"},
			fromConfigMap("k", "cm", "k", false), fromSecret("PW", "s", "p", false),
			fromConfigMap("OPT1", "cm", "none", true), fromSecret("OPT2", "none", "k", true),
		},
	})
	wantLines(t, got, err, "PW=pw", "REF=from-secret/pw/d", "S_k=from-secret", "S_p=pw", "dotted.key=d",
		"k=from-cm", "p=pw")
	if src.reads != 4 {
		t.Errorf("%d reads, want one per object that is there and one per use of one that isn't (4)", src.reads)
	}
}

func TestMissingObjects(t *testing.T) {
	for want, v := range map[string]corev1.EnvVar{
		`configmap "none" not found`:              fromConfigMap("X", "none", "k", false),
		`secret "none" not found`:                 fromSecret("X", "none", "k", false),
		`couldn't find key zz in ConfigMap ns/cm`: fromConfigMap("X", "cm", "zz", false),
		`couldn't find key zz in Secret ns/s`:     fromSecret("X", "s", "zz", false),
	} {
		_, err := resolve(t, testObjects(), corev1.Container{Env: []corev1.EnvVar{v}})
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := resolve(t, nil, corev1.Container{Env: []corev1.EnvVar{fromSecret("X", "s", "p", false)}}); err == nil {
		t.Error("a node without an API server found a Secret")
	}
	down := testObjects()
	down.err = errors.New("connection refused")
	if _,
		err := resolve(t, down, corev1.Container{Env: []corev1.EnvVar{fromConfigMap("X", "cm", "k", true)}}); !errors.Is(err,
		down.err) {
		t.Errorf("got %v: optional must not hide that the API server can't be reached", err)
	}
}

func TestServices(t *testing.T) {
	src := &objects{services: []*corev1.Service{
		service("default", "kubernetes", "10.96.0.1", corev1.ServicePort{Name: "https", Port: 443, Protocol: "TCP"}),
		service("default", "other", "10.96.0.9", corev1.ServicePort{Port: 1}),
		service("ns", "my-db", "fd00::7", corev1.ServicePort{Port: 53, Protocol: "UDP"},
			corev1.ServicePort{Name: "web-ui", Port: 80}),
		service("ns", "headless", "None", corev1.ServicePort{Port: 1}),
	}}
	kubernetes := []string{
		"KUBERNETES_PORT=tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443",
		"KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
		"KUBERNETES_PORT_443_TCP_PORT=443", "KUBERNETES_PORT_443_TCP_PROTO=tcp", "KUBERNETES_SERVICE_HOST=10.96.0.1",
		"KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443",
	}
	got, err := resolve(t, src, corev1.Container{})
	wantLines(t, got, err, kubernetes...)

	linked := func(in *Input) { in.Pod.Spec.EnableServiceLinks = nil }
	got, err = resolve(t, src, corev1.Container{Env: []corev1.EnvVar{
		{Name: "MY_DB_SERVICE_HOST", Value: "mine"},
		{Name: "U", Value: "$(MY_DB_PORT)"},
	}}, linked)
	wantLines(t, got, err, slices.Concat(kubernetes, []string{
		"MY_DB_PORT=udp://[fd00::7]:53", "MY_DB_PORT_53_UDP=udp://[fd00::7]:53", "MY_DB_PORT_53_UDP_ADDR=fd00::7",
		"MY_DB_PORT_53_UDP_PORT=53", "MY_DB_PORT_53_UDP_PROTO=udp", "MY_DB_PORT_80_TCP=tcp://[fd00::7]:80",
		"MY_DB_PORT_80_TCP_ADDR=fd00::7", "MY_DB_PORT_80_TCP_PORT=80", "MY_DB_PORT_80_TCP_PROTO=tcp",
		"MY_DB_SERVICE_HOST=mine", "MY_DB_SERVICE_PORT=53", "MY_DB_SERVICE_PORT_WEB_UI=80", "U=udp://[fd00::7]:53",
	})...)

	src.servicesErr = errors.New("not synced")
	if _, err := resolve(t, src, corev1.Container{}); err == nil ||
		!strings.Contains(err.Error(), "services have not yet been read") {
		t.Errorf("got %v", err)
	}
	got, err = resolve(t, src, corev1.Container{}, func(in *Input) { in.Static = true })
	wantLines(t, got, err)
	if src.waited {
		t.Error("a static pod has waited for the API server, which it may be itself")
	}
	src.servicesErr = nil
	got, err = resolve(t, src, corev1.Container{}, func(in *Input) { in.Static = true })
	wantLines(t, got, err, kubernetes...)
}

func TestNULIsRefused(t *testing.T) {
	src := testObjects()
	src.secrets["ns/s"].Data["p"] = []byte("a\x00b")
	_, err := resolve(t, src, corev1.Container{Name: "app", Env: []corev1.EnvVar{fromSecret("PW", "s", "p", false)}})
	if err == nil || !strings.Contains(err.Error(), "PW") || strings.Contains(err.Error(), "a\x00b") {
		t.Errorf("got %v, want an error that names the variable and hides the value", err)
	}
}

func TestFileKeys(t *testing.T) {
	dir := t.TempDir()
	text := "# comment\n\n A='one' # why\nB='two\nlines'\nC= 'apart'\nD='='\n"
	if err := os.WriteFile(filepath.Join(dir, "vars"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := func(path, key string, optional bool) corev1.Container {
		return corev1.Container{Env: []corev1.EnvVar{{
			Name: "X",
			ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{
				VolumeName: "v", Path: path, Key: key, Optional: &optional,
			}},
		}}}
	}
	mounted := func(in *Input) { in.VolumePaths = map[string]string{"v": dir} }
	for k, want := range map[string]string{"A": "one", "B": "two\nlines", "C": "", "D": "="} {
		got, err := resolve(t, nil, key("vars", k, false), mounted)
		wantLines(t, got, err, "X="+want)
	}
	got, err := resolve(t, nil, key("none", "A", true), mounted)
	wantLines(t, got, err)
	got, err = resolve(t, nil, key("vars", "Z", true), mounted)
	wantLines(t, got, err)
	for _, c := range []corev1.Container{
		key("vars", "Z", false), key("none", "A", false), key("out", "root", false),
		key("fifo", "A", true), key("../x", "A", false),
	} {
		if got, err := resolve(t, nil, c, mounted); err == nil || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v and %v, want an error without the host's path", c.Env[0].ValueFrom.FileKeyRef.Path, got, err)
		}
	}
}

func TestEnvFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"A":          "line 1: missing '='",
		"\nA ='x'":   "line 2: whitespace before",
		"A=x":        "line 1: value must be enclosed",
		"='x'":       "line 1: empty variable name",
		"A='x":       "line 1: unclosed",
		"A='x\ny' z": "line 2: unexpected content",
	} {
		if _, _, err := parseEnvFile(text, "B"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
