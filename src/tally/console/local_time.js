// A time in the browser's time zone, with UTC in its tooltip. Without `at`, the fallback text.
const clock = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const day = { day: "numeric", month: "short", year: "numeric" };
const formats = {
  minute: { ...day, ...clock },
  second: { ...day, ...clock, second: "2-digit" },
  clock: { ...clock, second: "2-digit" },
  day: day,
};

export default {
  template: `<time v-if="at" :datetime="at" :title="tooltip">{{ text }}</time><span v-else>{{ zone ?? label }}</span>`,
  props: { at: String, format: { type: String, default: "minute" }, label: String },
  computed: {
    date() {
      return new Date(this.at);
    },
    local() {
      const format = formats[this.format] ?? formats.minute;
      return new Intl.DateTimeFormat("en-GB", format).format(this.date);
    },
    text() {
      return this.label || this.local;
    },
    tooltip() {
      const utc = this.date.toISOString().slice(0, 19).replace("T", " ") + " UTC";
      return this.label ? `${this.local} (${utc})` : utc;
    },
    zone() {
      return this.format === "zone" ? Intl.DateTimeFormat().resolvedOptions().timeZone : null;
    },
  },
};
