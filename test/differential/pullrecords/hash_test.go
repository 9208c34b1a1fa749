package pullrecords

import (
	"context"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/credentialprovider/secrets"
	"k8s.io/kubernetes/pkg/kubelet/images/pullmanager"

	"kubelot.dev/services/podsync/podsynctest"
)

var longAgo = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// kubernetes is where Kubernetes' sources are.
func kubernetes(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// anything is a registry that everybody may pull all from.
type anything struct{}

func (anything) ImageStatus(context.Context, *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	return &runtimeapi.Image{Id: "sha256:x"}, nil
}

func (anything) PullImage(context.Context, *runtimeapi.ImageSpec, *runtimeapi.AuthConfig,
	*runtimeapi.PodSandboxConfig,
) (string, error) {
	return "sha256:x", nil
}

// A login has the same hash under both agents, so that the one knows it by the other's record.
func TestHashes(t *testing.T) {
	for _, data := range []string{
		`{"auths":{"reg.example":{"username":"u","password":"p"}}}`,
		`{"auths":{"reg.example":{"username":"u","password":"p","email":"me@x.example"}}}`,
		`{"auths":{"reg.example":{"auth":"dTpwOnE="}}}`,
		`{"auths":{"reg.example":{"username":"overruled","password":"p","auth":"dTpw"}}}`,
		`{"auths":{"https://reg.example/v1/":{"username":"<&>\u2028é\"","password":"\u0000"}}}`,
		`{"auths":{"reg.example":{}}}`,
		`{"auths":{"reg.example/team":{"username":"a"},"reg.example":{"username":"b"}}}`,
	} {
		secret := corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{UID: "uid", Namespace: "ns", Name: "s"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)},
		}
		ring, err := secrets.MakeDockerKeyring([]corev1.Secret{secret}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := ring.Lookup("reg.example/team/app")

		dir := t.TempDir()
		records, err := podsynctest.OpenRecords(podsynctest.RecordsConfig{RootDir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		puller := podsynctest.NewPuller(podsynctest.PullerConfig{Records: records}, anything{},
			func(podsynctest.PullEvent) {})
		if _, err := puller.Ensure(t.Context(), podsynctest.PullRequest{
			Pod: &corev1.Pod{}, Image: "reg.example/team/app:1",
			Policy: corev1.PullAlways, Secrets: []corev1.Secret{secret},
		}); err != nil {
			t.Fatal(err)
		}
		files, err := pullmanager.NewFSPullRecordsAccessor(klog.Background(), dir)
		if err != nil {
			t.Fatal(err)
		}
		record, _, err := files.GetImagePulledRecord("sha256:x")
		if err != nil || record == nil {
			t.Fatalf("%s: %v, %v", data, record, err)
		}
		if got := record.CredentialMapping["reg.example/team/app"].KubernetesSecrets; len(got) != 1 || got[0].UID != "uid" ||
			got[0].CredentialHash != want[0].AuthConfigHash {
			t.Errorf("%s: recorded as %v, want the hash %s", data, got, want[0].AuthConfigHash)
		}
	}
}
