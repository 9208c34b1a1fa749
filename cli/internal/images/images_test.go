package images

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cli/internal/paint"
)

func TestTable(t *testing.T) {
	long := "sha256:" + strings.Repeat("a", 64)
	rows := Build([]*runtimeapi.Image{
		{Id: long, RepoTags: []string{"docker.io/library/web:2", "docker.io/library/web:1"}, Size: 3 << 20},
		{Id: "p", RepoTags: []string{"pause:1"}, RepoDigests: []string{"pause@sha256:b"}, Size: 1 << 19, Pinned: true},
		{Id: "n"},
		{Id: "d", RepoDigests: []string{"app@sha256:c"}},
	}, []*runtimeapi.Container{
		{ImageId: long, ImageRef: long}, {ImageRef: long}, {ImageRef: "pause@sha256:b"}, {ImageRef: "gone"}, {},
	})
	want := `IMAGE                    ID             SIZE   CONTAINERS  PINNED
<none>                   n              0.0Mi  0           -
app@sha256:c             d              0.0Mi  0           -
docker.io/library/web:1  aaaaaaaaaaaaa  3.0Mi  2           -
pause:1                  p              0.5Mi  1           yes
`
	if got := Table(rows, paint.Painter{}); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
	if got := Table(rows, paint.Painter{On: true}); strings.Count(got, "\x1b[2m") != 2 {
		t.Errorf("what may be collected isn't dim:\n%s", got)
	}
	if got := Table(nil, paint.Painter{}); !strings.Contains(got, "no images") {
		t.Errorf("without images: %q", got)
	}
}
