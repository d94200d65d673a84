// What TensorBoard loads as the plugin's module: it shows the same pages as `gpuprep trace serve`.
export function render() {
  document.location.replace("index.html");
}
