package doze

import (
	"reflect"
	"testing"
)

func TestPlanAsText(t *testing.T) {
	for _, p := range []Plan{
		{Page: 7, Metrics: 8, Alarm: 9},
		{Page: 0, Metrics: 1, Alarm: 2, Doors: []Door{
			{10, "device-plugins-1-2-3", "/var/lib/kubelet/device-plugins/kubelet.sock"}, {11, "a-1-2-3", "/with two  blanks "},
		}},
	} {
		got, err := parse(p.String())
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%+v became %+v, %v", p, got, err)
		}
	}
}

func TestOddPlans(t *testing.T) {
	const whole = "page 3\nmetrics 4\nalarm 5\n"
	if _, err := parse(whole); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "page 3", "page 3\nmetrics 4", whole + "door 6\n", whole + "door 6 name\n", whole + "door x name /path\n",
		whole + "window 6\n", whole + "page -1\n", whole + "page 3 4\n", whole + "\n", whole + "door 6  /path\n",
		"page 99999999999999999999\nmetrics 4\nalarm 5\n",
	} {
		if p, err := parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("page 3\nmetrics 4\nalarm 5\ndoor 6 n-1-2-3 /a b\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parse(text)
		if err != nil {
			return
		}
		if again, err := parse(p.String()); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%q is %+v, and then %+v (%v)", text, p, again, err)
		}
	})
}
