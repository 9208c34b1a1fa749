package apply

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
)

func TestDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		// want are the pods; without any it is an error with all of problems.
		want     []string
		problems []string
	}{
		"one": {text: "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", want: []string{"f: default/web"}},
		"namespace": {
			text: "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}", want: []string{"f: shop/web"},
		},
		"several, with empty ones": {
			text: "# two\n---\n\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n---\n# none\n---\n" +
				"apiVersion: v1\nkind: Pod\nmetadata:\n  name: b\n",
			want: []string{"f (document 1): default/a", "f (document 2): default/b"},
		},
		"JSON with tabs and slashes": {
			text: "{\n\t\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"web\"}, \"x\": \"a\\/b\"}",
			want: []string{"f: default/web"},
		},
		"nothing":  {text: "# only a comment\n", problems: []string{"f: it has no document"}},
		"not YAML": {text: "a: b: c\n", problems: []string{"f: it is not YAML"}},
		"no kind":  {text: "a: 1\n", problems: []string{"f: it has no kind"}},
		"no name":  {text: "apiVersion: v1\nkind: Pod\n", problems: []string{"f: metadata.name is missing"}},
		"all that can't be": {
			text: docOf("v1", "ConfigMap") + docOf("v1", "Secret") + docOf("v1", "PersistentVolumeClaim") +
				docOf("v1", "ServiceAccount") + docOf("v1", "Service") + docOf("apps/v1", "Deployment") +
				docOf("v1", "PodList") + docOf("v2", "Pod"),
			problems: []string{
				"f (document 1): a ConfigMap can't be: static pods run without an API server, which keeps them. Put the values " +
					"into the pod's env",
				"f (document 2): a Secret can't be", "f (document 3): a PersistentVolumeClaim can't be",
				"hostPath", "f (document 4): a ServiceAccount can't be and isn't needed", "f (document 5): a Service can't be",
				"f (document 6): a Deployment can't be: no controller", "f (document 7): a PodList can't be: write each pod",
				"f (document 8): v2 Pod can't be: only a v1 Pod can",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			docs, err := Documents("f", []byte(c.text))
			var got []string
			for _, d := range docs {
				got = append(got, d.Where+": "+d.Pod())
			}
			if strings.Join(got, "; ") != strings.Join(c.want, "; ") || (err == nil) != (len(c.problems) == 0) {
				t.Fatalf("got %q, %v; want %q", got, err, c.want)
			}
			for _, want := range c.problems {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func docOf(version, kind string) string {
	return "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: x}\n---\n"
}

// What is written is YAML whatever was read, says whose it is, and means the same.
func TestContent(t *testing.T) {
	const tabs = "{\n\t\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"web\"},\n\t" +
		"\"spec\": {\"activeDeadlineSeconds\": 9007199254740993, \"hostname\": \"a\\/b\"}}"
	for _, text := range []string{
		tabs, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  activeDeadlineSeconds: 9007199254740993\n" +
			"  hostname: a/b # a comment",
	} {
		docs, err := Documents("f", []byte(text))
		if err != nil || len(docs) != 1 {
			t.Fatalf("%d documents, %v", len(docs), err)
		}
		data := content(docs[0])
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict(data, &pod); err != nil {
			t.Fatalf("%v:\n%s", err, data)
		}
		deadline := pod.Spec.ActiveDeadlineSeconds
		if pod.Name != "web" || pod.Spec.Hostname != "a/b" || deadline == nil || *deadline != 9007199254740993 {
			t.Errorf("the pod became %+v", pod)
		}
		if m := manifestOf("x", data); !m.Own || m.Name != "web" || !strings.HasSuffix(string(data), "\n") {
			t.Errorf("the file is %+v:\n%s", m, data)
		}
	}
}
