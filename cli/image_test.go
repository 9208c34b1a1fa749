package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri/critest"
)

func TestImages(t *testing.T) {
	runtime := critest.Start(t)
	runtime.AddImage("registry.example/app:1", 5<<20)
	at := "--container-runtime-endpoint=" + runtime.Endpoint()
	code, stdout, stderr := call(t, "kubelot", "image", "pull", at, "registry.example/web:2")
	if code != 0 || !strings.Contains(stdout, "registry.example/web:2: pulled in ") {
		t.Errorf("pull: exit code %d, %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = call(t, "kubelot", "image", "ls", at)
	if code != 0 || !strings.Contains(stdout, "registry.example/app:1") || strings.Count(stdout, "\n") != 3 {
		t.Errorf("ls: exit code %d, %s%s", code, stdout, stderr)
	}
	var rows []struct {
		Names []string `json:"names"`
	}
	code, stdout, _ = call(t, "kubelot", "image", "ls", at, "-o=json")
	if err := json.Unmarshal([]byte(stdout), &rows); code != 0 || err != nil || len(rows) != 2 {
		t.Errorf("ls -o json: exit code %d, %v, %s", code, err, stdout)
	}
	runtime.On("PullImage", func(context.Context, any) error { return errors.New("no such host") })
	if code, _, stderr := call(t, "kubelot", "image", "pull", at, "x"); code != 1 || !strings.Contains(stderr, "no such") {
		t.Errorf("a pull that fails: exit code %d, %s", code, stderr)
	}
	if code, _, _ := call(t, "kubelot", "image", "ls", "-o=xml", at); code != 1 {
		t.Errorf("a form that doesn't exist: exit code %d", code)
	}
}

// Pods' annotations have secrets: kubectl's copy of the manifest.
func TestRuntimeWithoutAnnotations(t *testing.T) {
	runtime := critest.Start(t)
	client := runtime.Client(t, 0)
	runtime.AddImage("app:1", 1)
	config := &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"},
		Annotations: map[string]string{"last": "s3cr3t"},
	}
	sandbox, err := client.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "app"},
		Image:       &runtimeapi.ImageSpec{Image: "app:1", Annotations: map[string]string{"last": "s3cr3t"}},
		Annotations: map[string]string{"last": "s3cr3t"},
	}, config)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := describeRuntime(t.Context(), runtime.Endpoint(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"web"`, `"name":"app"`, "app:1", `"version":`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %s in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "s3cr3t") {
		t.Errorf("the secret shows: %s", out.String())
	}
	runtime.On("ListImages", func(context.Context, any) error { return errors.New("broken") })
	out.Reset()
	err = describeRuntime(t.Context(), runtime.Endpoint(), &out)
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(out.String(), `"name":"web"`) {
		t.Errorf("what can be had is missing: %v, %s", err, out.String())
	}
}

func TestRestartWithoutBus(t *testing.T) {
	code, _, stderr := call(t, "kubelot", "restart", "web", "--run-dir="+t.TempDir())
	if code != 1 || !strings.Contains(stderr, "there is no key of the bus") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
