# Checks on this computer: are the files those that were built, is the driver new enough, does the GPU encode?
# Run it in PowerShell from the folder that holds it:  powershell -ExecutionPolicy Bypass -File check.ps1
$ErrorActionPreference = 'Stop'
$here = Split-Path -Parent $MyInvocation.MyCommand.Path
$ffmpeg = Join-Path $here 'bin\ffmpeg.exe'
$minimum = [version]'@MINIMUM_DRIVER@'
$failed = 0
function Say($ok, $what, $todo) {
  if ($ok) { Write-Output "PASS  $what" } else { Write-Output "FAIL  $what`n      $todo"; $script:failed = 1 }
}

$manifest = Get-Content -Raw (Join-Path $here 'manifest.json') | ConvertFrom-Json
foreach ($file in $manifest.files.PSObject.Properties) {
  $path = Join-Path $here ($file.Name -replace '/', '\')
  $same = (Test-Path $path) -and ((Get-FileHash -Algorithm SHA256 $path).Hash -eq $file.Value)
  if (-not $same) { Say $false "$($file.Name) is not the file that was built" 'Unpack the zip again.' }
}
Say ($failed -eq 0) 'all files are those that were built' 'Unpack the zip again.'

$smi = Get-Command nvidia-smi -ErrorAction SilentlyContinue
$driver = if ($smi) { & $smi.Source --query-gpu=driver_version --format=csv,noheader | Select-Object -First 1 } else { '' }
$new = $driver -match '^\d+\.\d+' -and [version]$driver.Trim() -ge $minimum
Say $new "driver $driver, $minimum or newer is needed" 'Install a newer driver from NVIDIA.'

$encoders = & $ffmpeg -hide_banner -encoders 2>$null | Out-String
Say ($encoders -match 'h264_nvenc' -and $encoders -match 'hevc_nvenc') 'FFmpeg has the NVENC encoders' 'This is not the FFmpeg of this zip.'

$clip = Join-Path ([IO.Path]::GetTempPath()) "gpuprep-check-$PID.mp4"
$said = & $ffmpeg -hide_banner -y -f lavfi -i testsrc2=size=1280x720:rate=30 -frames:v 90 -c:v h264_nvenc $clip 2>&1 | Out-String
Say ($LASTEXITCODE -eq 0) 'the GPU encodes H.264' $said
if ($LASTEXITCODE -eq 0) {
  $said = & $ffmpeg -hide_banner -hwaccel cuda -hwaccel_output_format cuda -i $clip -vf scale_cuda=640:360 -c:v h264_nvenc -f null - 2>&1 | Out-String
  Say ($LASTEXITCODE -eq 0 -and $said -match 'frame=\s*90') 'the GPU transcodes it: decodes, scales, encodes 90 frames' $said
}
Remove-Item -ErrorAction SilentlyContinue $clip
exit $failed
